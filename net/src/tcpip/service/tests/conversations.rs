//! Conversations of two clients that are ended in any way at any time, over the machine or directly: a model of what TCP means says what each side may see.

use super::*;
use crate::tcpip::service::Failure;

/// One side of a conversation, as TCP has it.
#[derive(Clone, Copy, Debug, Default)]
struct Side {
    /// None once the program has closed it.
    id: Option<ConnectionId>,
    sent: usize,
    received: usize,
    has_shut_sending: bool,
    has_shut_receiving: bool,
    has_closed: bool,
    has_aborted: bool,
    /// Set once it has written to a side that was closed.
    has_written_late: bool,
    /// Set if the path between the two has ended since it was opened, or the machine has.
    was_cut: bool,
}

impl Side {
    fn has_left(&self) -> bool {
        self.has_closed || self.has_aborted
    }

    /// Returns true if it may hear that the connection has failed.
    fn may_fail(&self, other: &Side) -> bool {
        let is_unread = other.has_closed && (self.sent > other.received || self.has_written_late);
        other.has_aborted || is_unread || self.was_cut
    }

    /// Returns true if it has to hear that: once both halves are at their end, nobody says more.
    fn must_fail(&self, other: &Side) -> bool {
        let is_over = self.has_shut_sending && other.has_shut_sending;
        let is_unread = other.has_closed && self.sent > other.received;
        !is_over && (other.has_aborted || is_unread && !other.has_shut_receiving)
    }

    /// Returns true if all that the other has sent has to come, and then the end.
    fn is_complete(&self, other: &Side) -> bool {
        (other.has_shut_sending || other.has_closed) && !self.may_fail(other)
    }
}

/// Turns within which all that was sent has come, if both read.
const STEPS_TO_THE_END: usize = 1000;

#[derive(Clone, Debug)]
enum Act {
    Open,
    Write {
        end: usize,
        bytes: usize,
    },
    /// With the verb that keeps what the path has no room for.
    WriteAll {
        end: usize,
        bytes: usize,
    },
    Read {
        end: usize,
        bytes: usize,
    },
    ShutSending {
        end: usize,
    },
    ShutReceiving {
        end: usize,
    },
    Close {
        end: usize,
    },
    Abort {
        end: usize,
    },
    /// What one of them says goes on, and it takes in nothing: so what both say crosses.
    Sleep {
        end: usize,
        sleeps: bool,
    },
    /// Both say so much that they are introduced, if nothing stands in the way.
    Chat,
    Step,
    Steps,
}

/// What becomes of what is between the two.
#[derive(Clone, Copy, Debug)]
enum Fate {
    Nothing,
    /// The path between the two ends at one of them, before this act.
    PathEnds {
        end: usize,
        at: usize,
    },
    /// The machine ends behind all acts.
    MachineEnds,
}

fn fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        3 => Just(Fate::Nothing),
        1 => (0..2_usize, 0..300_usize).prop_map(|(end, at)| Fate::PathEnds { end, at }),
        1 => Just(Fate::MachineEnds),
    ]
}

fn act() -> impl Strategy<Value = Act> {
    let end = || 0..2_usize;
    prop_oneof![
        2 => Just(Act::Open),
        8 => (end(), 1..50_000_usize).prop_map(|(end, bytes)| Act::Write { end, bytes }),
        4 => (end(), 1..20_usize).prop_map(|(end, bytes)| Act::Write { end, bytes }),
        2 => (end(), 1..70_000_usize).prop_map(|(end, bytes)| Act::WriteAll { end, bytes }),
        8 => (end(), 1..200_000_usize).prop_map(|(end, bytes)| Act::Read { end, bytes }),
        1 => end().prop_map(|end| Act::ShutSending { end }),
        1 => end().prop_map(|end| Act::ShutReceiving { end }),
        2 => end().prop_map(|end| Act::Close { end }),
        1 => end().prop_map(|end| Act::Abort { end }),
        2 => (end(), any::<bool>()).prop_map(|(end, sleeps)| Act::Sleep { end, sleeps }),
        2 => Just(Act::Chat),
        8 => Just(Act::Step),
        2 => Just(Act::Steps),
    ]
}

struct Talk {
    world: World,
    listening: Listening,
    streams: Vec<[Side; 2]>,
}

impl Talk {
    fn new(streams: usize, keeps_apart: bool) -> Talk {
        let mut world = plain(2);
        world.keeps_apart = keeps_apart;
        let listening = world.listen(1, 7);
        let mut talk = Talk { world, listening, streams: vec![[Side::default(); 2]; streams] };
        (0..streams).for_each(|stream| talk.open(stream));
        talk
    }

    fn wake(&mut self) {
        self.world.parties.iter_mut().for_each(|party| party.sleeps = false);
    }

    fn open(&mut self, stream: usize) {
        if self.streams[stream].iter().any(|side| side.id.is_some()) {
            return;
        }
        self.wake();
        let ids = self.world.connect(0, 1, self.listening);
        self.streams[stream] = ids.map(|id| Side { id: Some(id), ..Side::default() });
    }

    fn read(&mut self, stream: usize, end: usize, bytes: usize) -> usize {
        let Some(id) = self.streams[stream][end].id else { return 0 };
        let found = self.world.read(end, id, bytes);
        let received = &mut self.streams[stream][end].received;
        for (at, found) in found.iter().enumerate() {
            assert_eq!(*found, byte(*received + at), "byte {} at {end}", *received + at);
        }
        *received += found.len();
        found.len()
    }

    fn write(&mut self, stream: usize, end: usize, bytes: usize, is_all: bool) {
        let other = self.streams[stream][1 - end];
        let side = &mut self.streams[stream][end];
        let Some(id) = side.id else { return };
        let bytes: Vec<u8> = (side.sent..side.sent + bytes).map(byte).collect();
        side.has_written_late |= other.has_closed;
        side.sent += match is_all {
            true => self.world.write_all(end, id, &bytes),
            false => self.world.write(end, id, &bytes),
        };
    }

    fn act(&mut self, stream: usize, act: &Act) {
        match *act {
            Act::Open => self.open(stream),
            Act::Write { end, bytes } => self.write(stream, end, bytes, false),
            Act::WriteAll { end, bytes } => self.write(stream, end, bytes, true),
            Act::Read { end, bytes } => {
                let _ = self.read(stream, end, bytes);
            }
            Act::Sleep { end, sleeps } => self.world.parties[end].sleeps = sleeps,
            Act::Chat => {
                for end in [0, 1].repeat(8) {
                    self.write(stream, end, 10, false);
                    self.world.step();
                    let _ = self.read(stream, 1 - end, 1000);
                }
            }
            Act::Step => self.world.step(),
            Act::Steps => (0..20).for_each(|_| self.world.step()),
            Act::ShutSending { end }
            | Act::ShutReceiving { end }
            | Act::Close { end }
            | Act::Abort { end } => {
                let Some(id) = self.streams[stream][end].id else { return };
                let side = &mut self.streams[stream][end];
                let client = &mut self.world.parties[end].client;
                match act {
                    Act::ShutSending { .. } => {
                        client.shut_sending(id);
                        side.has_shut_sending = true;
                    }
                    Act::ShutReceiving { .. } => {
                        client.shut_receiving(id);
                        side.has_shut_receiving = true;
                    }
                    Act::Abort { .. } => {
                        client.abort(id);
                        side.has_aborted = true;
                    }
                    _ => side.has_closed = !side.has_aborted,
                }
                if side.has_left() {
                    side.id = None;
                    self.world.close(end, id);
                }
            }
        }
    }

    /// The path between the two ends at one of them.
    fn cut(&mut self, end: usize) {
        let Party { client, peers, .. } = &mut self.world.parties[end];
        for at in std::mem::take(peers).into_keys() {
            client.lose_peer(at);
            let sides = self.streams.iter_mut().flatten();
            sides.for_each(|side| side.was_cut = true);
        }
    }

    /// The machine ends: each side has an error, behind what has come.
    fn end_machine(&mut self) {
        (0..2).for_each(|at| self.world.drop_far(at));
        self.wake();
        self.streams.iter_mut().flatten().for_each(|side| side.was_cut = true);
        self.world.settle();
        for (stream, end) in (0..self.streams.len()).flat_map(|stream| [(stream, 0), (stream, 1)]) {
            let Some(id) = self.streams[stream][end].id else { continue };
            while self.read(stream, end, 1 << 20) > 0 {}
            let [side, other] = [end, 1 - end].map(|end| self.streams[stream][end]);
            let client = &mut self.world.parties[end].client;
            assert_eq!(client.writable(id), Writable::Failed);
            match client.readable(id) {
                Readable::Failed => {}
                Readable::Finished if side.has_shut_receiving => {}
                Readable::Finished => {
                    assert!(other.has_shut_sending || other.has_left(), "{side:?}, {other:?}");
                    assert_eq!(side.received, other.sent, "{side:?}, {other:?}");
                }
                readable => panic!("{readable:?}: {side:?}, {other:?}"),
            }
            assert!(client.take_end(id).is_some());
            self.world.close(end, id);
        }
        for (at, party) in self.world.parties.iter().enumerate() {
            assert_eq!((party.client.links(), party.client.sockets()), (0, at));
        }
    }

    /// All that is to come comes, and each side sees what TCP lets it see.
    fn finish(&mut self) {
        self.wake();
        let ends = || (0..self.streams.len()).flat_map(|stream| [(stream, 0), (stream, 1)]);
        let ends: Vec<_> = ends().collect();
        for _ in 0..STEPS_TO_THE_END {
            self.world.step();
            for (stream, end) in &ends {
                let _ = self.read(*stream, *end, 1 << 20);
            }
        }
        for (stream, end) in ends {
            let Some(id) = self.streams[stream][end].id else { continue };
            let what = || format!("stream {stream}, end {end}");
            let sides = self.streams[stream];
            let (side, other) = (sides[end], sides[1 - end]);
            let client = &mut self.world.parties[end].client;
            let readable = client.readable(id);
            let failure = client.take_end(id);
            assert!(
                failure.is_none() || side.may_fail(&other),
                "{}: {failure:?}, {sides:?}",
                what()
            );
            if side.must_fail(&other) {
                assert!(failure.is_some(), "{}: it has failed, {sides:?}", what());
            }
            let is_reset = |failure| matches!(failure, Failure::Reset | Failure::Unwanted);
            assert!(failure.is_none_or(is_reset), "{}: {failure:?}, {sides:?}", what());
            if side.has_shut_receiving {
                continue;
            }
            if !side.may_fail(&other) {
                assert_eq!(side.received, other.sent, "{}: {sides:?}", what());
            }
            let is_complete = side.is_complete(&other);
            if readable == Readable::Finished {
                assert!(other.has_shut_sending || other.has_left(), "{}: {sides:?}", what());
                assert_eq!(side.received, other.sent, "{}: {sides:?}", what());
            }
            assert!(!is_complete || readable == Readable::Finished, "{}: {sides:?}", what());
        }
        for (end, id) in self.streams.iter().flat_map(|sides| [(0, sides[0].id), (1, sides[1].id)])
        {
            if let Some(id) = id {
                self.world.close(end, id);
            }
        }
        self.world.until(|world| {
            let is_left = |at: usize| {
                let party = &world.parties[at];
                party.client.sockets() > at
                    || party.client.links() > 0
                    || world.counters(at).sockets > at
            };
            !is_left(0) && !is_left(1)
        });
        assert!(self.world.parties.iter().all(|party| party.left.is_none()));
        assert!(self.world.peer_faults.is_empty(), "{:?}", self.world.peer_faults);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn both_sides_see_what_tcp_means_however_a_conversation_ends(
        acts in prop::collection::vec(act(), 1..300),
        streams in 1..4_usize,
        keeps_apart in prop::bool::weighted(0.2),
        fate in fate(),
    ) {
        let mut talk = Talk::new(streams, keeps_apart);
        for (number, act) in acts.iter().enumerate() {
            match fate {
                Fate::PathEnds { end, at } if at == number => talk.cut(end),
                _ => {}
            }
            talk.act(number % streams, act);
        }
        match fate {
            Fate::MachineEnds => talk.end_machine(),
            _ => talk.finish(),
        }
    }
}
