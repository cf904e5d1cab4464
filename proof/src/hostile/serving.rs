//! A TCPIP machine that a client sends any message, beside a client that is honest; and an honest client whose machine, and whose peers, send any.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use fabric::name::Name;
use fabric::path::{Receiver, SendError, Sender, Shape, Side, Terms};
use net::tcpip::service::{
    Client, ClientLimits, Given, Ground, Left, REQUESTS_PER_CALL_MAX, Service, WINDOW_BYTES,
};
use net::tcpip::{ConnectionId, KeepAlive, Options, SendToError, Stack};
use os::doorbell::{Doorbell, Listen};

use super::cable::{Cable, SECOND, stack, v4, v6};
use super::script::{Script, TAME};
use super::{DEEDS_MAX, Watch};

/// What each client may have: little, so that it is soon reached.
const LIMITS: ClientLimits =
    ClientLimits { sockets_max: 12, buffers_max: 1 << 20, share: 1, introduce: true };

/// Where the honest client listens, and where the other one may.
const PORT: u16 = 80;
const OTHER_PORT: u16 = 81;

const BACKLOG: usize = 4;

/// The highest bit of the numbers that a machine gives.
const ACCEPTED: u32 = 1 << 31;

/// Credit that is given in one message.
const CREDIT: u64 = 1 << 20;

/// Bytes of the body of a message, beside data.
const BODY_BYTES_MAX: usize = 64;

/// Polls of the stack in one turn, and turns after the last deed.
const POLLS_MAX: usize = 1000;
const TURNS_MAX: usize = 20_000;

/// Nanoseconds of a turn.
const TURN_NS: u64 = 10_000;

/// What an honest client says to itself.
const WORDS: &[u8] = b"undisturbed";

type Halves = (Sender, Receiver);

/// Both ends of a path.
fn path() -> [Halves; 2] {
    let terms = Terms {
        window_bytes: WINDOW_BYTES,
        storage_bytes_max: 16 << 20,
        peer_storage_bytes_max: 16 << 20,
        ..Terms::DEFAULT
    };
    let (left, left_shown) = Side::create(Shape::SIMPLE).expect("memory for a path");
    let (right, right_shown) = Side::create(Shape::SIMPLE).expect("memory for a path");
    let (left_bells, right_bells) =
        (0..2).map(|_| Doorbell::ends().expect("descriptors for a path")).unzip();
    let mut left = left.join(right_shown, left_bells, terms).expect("the shape is the same");
    let mut right = right.join(left_shown, right_bells, terms).expect("the shape is the same");
    [&mut left, &mut right].map(|halves| (halves.senders.remove(0), halves.receivers.remove(0)))
}

/// Who sends the messages of a script.
#[derive(Clone, Copy, Debug)]
enum Voice {
    Client,
    Machine,
    /// Another client that has a path to the honest one.
    Peer,
}

/// Numbers of sockets and of pairs that are said, up to this.
const PAIRS: u32 = 5;

/// Sends a message that the voice may send, or nearly, or none.
fn say(voice: Voice, script: &mut Script<'_>, sender: &mut Sender) {
    if script.below(4 * TAME) == 0 {
        let (head, body) = (script.bytes(20), script.bytes(BODY_BYTES_MAX));
        let _ = sender.send(head, body);
        return;
    }
    let kind: u8 = match voice {
        Voice::Client => 1 + script.below(15) as u8,
        Voice::Machine => script
            .pick(&[5, 5, 6, 7, 32, 33, 34, 35, 35, 36, 37, 38, 39, 40, 40, 41, 41, 42, 42, 43]),
        Voice::Peer => script.pick(&[5, 5, 7, 36, 64, 64, 65]),
    };
    let kind = if script.below(8 * TAME) == 0 { script.below(256) as u8 } else { kind };
    let code = if script.below(3) == 0 { script.below(4) as u8 } else { 0 };
    let socket = match script.below(TAME) {
        0 => script.number() as u32,
        1..4 => ACCEPTED | script.below(4) as u32,
        _ => script.below(PAIRS as usize) as u32,
    };
    let value = match script.below(8) {
        0 => script.number(),
        1 => 0,
        2 => script.below(4) as u64,
        3 => u64::from(ACCEPTED) | script.below(3) as u64 | 0x8000 << 32,
        4 => u64::from_le_bytes(name("C0").bytes()),
        5 => CREDIT << 32 | BACKLOG as u64,
        _ => CREDIT,
    };
    let mut head = [0; 16];
    (head[0], head[1]) = (kind, code);
    head[4..8].copy_from_slice(&socket.to_le_bytes());
    head[8..].copy_from_slice(&value.to_le_bytes());
    let body = match (script.below(TAME), kind) {
        (0, _) => script.bytes(BODY_BYTES_MAX).to_vec(),
        (_, 5) => vec![7; script.pick(&[1, 100, 3000, 60_000])],
        (_, 6) => [&address(script)[..], &[7; 1000][..script.below(1000)]].concat(),
        (_, 1..=4 | 32) => address(script).to_vec(),
        (_, 33 | 35) => [address(script), address(script)].concat(),
        (1, _) => address(script).to_vec(),
        _ => Vec::new(),
    };
    let _ = sender.send(&head, &body);
    sender.flush();
}

/// An address as it stands in a body.
fn address(script: &mut Script<'_>) -> [u8; 20] {
    let mut bytes = [0; 20];
    let port = script.pick(&[PORT, PORT, OTHER_PORT, OTHER_PORT, 0, 7]);
    bytes[2..4].copy_from_slice(&port.to_be_bytes());
    let last = script.pick(&[1, 1, 1, 1, 9]);
    match script.below(3) {
        0 => {
            bytes[0] = 6;
            bytes[4..6].copy_from_slice(&[0xfd, 0]);
            bytes[19] = last;
        }
        _ => {
            bytes[0] = 4;
            bytes[4..8].copy_from_slice(&[10, 1, 0, last]);
        }
    }
    bytes
}

fn name(text: &str) -> Name {
    text.parse().expect("it is a name")
}

/// The service of a TCPIP machine that a client sends anything.
///
/// # Panics
/// If the machine panics, a client has more than it may, the connection of the honest client does not go on, or anything is left over.
pub fn tcpip_service(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut machine = Machine::new();
        for _ in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            machine.act(&mut script);
        }
        machine.end();
    }
    watch.stop();
}

struct Base {
    stack: Stack,
    cable: Cable,
    now: u64,
}

impl Ground for Base {
    fn stack(&mut self) -> &mut Stack {
        &mut self.stack
    }

    fn now(&self) -> u64 {
        self.now
    }

    fn can_reach(&mut self, address: IpAddr) -> bool {
        [v4(1), v6(1), v4(9), v6(9)].contains(&address)
    }

    fn send_to(
        &mut self,
        from: SocketAddr,
        to: SocketAddr,
        data: &[u8],
    ) -> Result<(), SendToError> {
        self.stack.send_to(self.now, from, to, data, &mut self.cable)
    }
}

impl Base {
    fn poll(&mut self) {
        let Base { stack, cable, now } = self;
        let polls = (0..POLLS_MAX).take_while(|_| stack.poll(*now, cable)).count();
        assert!(polls < POLLS_MAX, "the stack comes to no end");
        // Nobody is at the LAN.
        cable.frames.clear();
    }
}

/// A client's place at the machine.
struct Seat {
    number: usize,
    /// None once the machine has let it go.
    far: Option<Halves>,
    is_full: bool,
}

struct Machine {
    base: Base,
    service: Service,
    honest: Client,
    near: Halves,
    /// The hostile client's end of its path, and whether it reads what it is told.
    hostile: Halves,
    reads: bool,
    /// The honest client first.
    seats: [Seat; 2],
    listener: ConnectionId,
    own: [ConnectionId; 2],
    /// Connections that the honest client has accepted.
    held: Vec<ConnectionId>,
}

impl Machine {
    fn new() -> Machine {
        let options = Options { mtu: 65_535, ..Options::default() };
        let (stack, cable) = stack(1, options);
        let mut service = Service::default();
        let ([near, far], [hostile, other_far]) = (path(), path());
        let seats = [("C0", far), ("C1", other_far)].map(|(text, far)| {
            let number = service.attach(name(text), LIMITS);
            Seat { number, far: Some(far), is_full: false }
        });
        let mut honest = Client::default();
        let at = SocketAddr::new(v4(1), PORT);
        let listener = honest.listen(at, BACKLOG).expect("it has no other socket");
        let base = Base { stack, cable, now: SECOND };
        let (reads, held) = (true, Vec::new());
        let own = [listener; 2];
        let mut machine =
            Machine { base, service, honest, near, hostile, reads, seats, listener, own, held };
        machine.until(|machine| machine.honest.opened(listener).is_some());
        let near = machine.honest.connect(at).expect("it may have more sockets");
        let mut accepted = None;
        machine.until(|machine| {
            accepted = accepted.or_else(|| machine.honest.accept(listener).map(|(id, _)| id));
            accepted.is_some() && !machine.honest.is_connecting(near)
        });
        machine.own = [near, accepted.expect("it was accepted")];
        machine
    }

    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(12) {
            0 => self.reads = script.below(4) > 0,
            1 => self.base.now += script.pick(&[SECOND / 1000, SECOND, 61 * SECOND]),
            2 => self.use_streams(script),
            3 => self.talk(),
            4 if self.seats[1].far.is_none() || script.below(16) == 0 => self.come_again(),
            _ => {
                let many = 1 + script.below(4);
                (0..many).for_each(|_| say(Voice::Client, script, &mut self.hostile.0));
            }
        }
        self.turn();
        for (_, guest, limits, counters) in self.service.clients() {
            assert!(counters.sockets <= limits.sockets_max, "{guest} has {}", counters.sockets);
            assert!(counters.buffers_bytes <= limits.buffers_max, "{guest} has more buffers");
        }
    }

    /// The hostile client leaves, or was sent away, and comes again.
    fn come_again(&mut self) {
        self.let_go(1);
        let [near, far] = path();
        self.hostile = near;
        let number = self.service.attach(name("C1"), LIMITS);
        self.seats[1] = Seat { number, far: Some(far), is_full: false };
    }

    fn let_go(&mut self, at: usize) {
        if self.seats[at].far.take().is_some() {
            self.service.detach(self.seats[at].number, &mut self.base);
        }
    }

    /// The honest client does something with the connections that others have made to it.
    fn use_streams(&mut self, script: &mut Script<'_>) {
        if let Some((id, _)) = self.honest.accept(self.listener) {
            self.held.push(id);
        }
        let Machine { honest, near: (sender, receiver), held, .. } = self;
        if held.is_empty() {
            return;
        }
        let at = script.below(held.len());
        let id = held[at];
        match script.below(6) {
            0 => {
                let _ = honest.read(id, &mut [0; 5000], Some(receiver));
            }
            1 => {
                let _ = honest.write_with(id, 3000, sender, |room| room.fill(7));
            }
            2 => honest.shut_sending(id),
            3 => {
                let _ = honest.take_end(id);
            }
            _ => {
                held.swap_remove(at);
                honest.close(id, Some(receiver));
            }
        }
    }

    /// The honest client says something to itself, over the machine.
    fn talk(&mut self) {
        let mut sent = 0;
        self.until(|machine| {
            let Machine { honest, near: (sender, _), own, .. } = machine;
            let left = &WORDS[sent..];
            let copy = |room: &mut [u8]| room.copy_from_slice(&left[..room.len()]);
            match honest.write_with(own[0], left.len(), sender, copy) {
                Ok(bytes) => sent += bytes,
                Err(SendError::Full) => {}
                Err(error) => panic!("the honest client: {error}"),
            }
            sent == WORDS.len()
        });
        let mut found = Vec::new();
        self.until(|machine| {
            let Machine { honest, near: (_, receiver), own, .. } = machine;
            let mut target = [0; WORDS.len()];
            let count = honest.read(own[1], &mut target, Some(receiver));
            found.extend_from_slice(&target[..count]);
            found.len() >= WORDS.len()
        });
        assert_eq!(found, WORDS);
    }

    fn until(&mut self, mut is_done: impl FnMut(&mut Machine) -> bool) {
        for _ in 0..TURNS_MAX {
            if is_done(self) {
                return;
            }
            self.turn();
        }
        panic!("the honest client waits without end");
    }

    /// One turn of everybody.
    fn turn(&mut self) {
        self.base.now += TURN_NS;
        let _ = self.honest.flush(&mut self.near.0);
        self.near.0.flush();
        for at in 0..self.seats.len() {
            let Seat { number, far, is_full } = &mut self.seats[at];
            let Some((sender, receiver)) = far else { continue };
            if std::mem::take(is_full) && sender.is_ready() {
                self.service.has_room(*number);
            }
            if let Err(left) =
                self.service.take(*number, receiver, &mut self.base, REQUESTS_PER_CALL_MAX)
            {
                if let Left::Fault(fault) = left {
                    sender.sever(fault.text());
                }
                assert_ne!(at, 0, "the honest client was sent away: {left:?}");
                self.let_go(at);
            }
        }
        self.base.poll();
        self.service.follow(&mut self.base);
        self.service.expire(&mut self.base);
        let mut last = None;
        while let Some(number) = self.service.next_to_give(last) {
            last = Some(number);
            let of_it = |seat: &Seat| seat.number == number && seat.far.is_some();
            let Some(at) = self.seats.iter().position(of_it) else { continue };
            let Seat { far, is_full, .. } = &mut self.seats[at];
            let Some((sender, receiver)) = far else { continue };
            let given = self.service.give(number, sender, receiver, &mut self.base);
            sender.flush();
            *is_full = given == Ok(Given::Full);
            if given.is_err() {
                assert_ne!(at, 0, "the path of the honest client has ended");
                self.let_go(at);
            }
        }
        self.base.poll();
        self.near.1.hear(Listen::Now);
        self.honest.take_in(&mut self.near.1);
        if self.honest.is_blocked() && self.near.0.is_ready() {
            self.honest.has_room();
        }
        // They talk over the machine.
        while let Some((at, _)) = self.honest.next_to_meet() {
            self.honest.lose_peer(at);
        }
        self.hostile.1.hear(Listen::Now);
        while self.reads && matches!(self.hostile.1.receive(), Ok(Some(_))) {}
    }

    fn end(mut self) {
        self.talk();
        self.let_go(1);
        self.talk();
        let Machine { honest, near: (_, receiver), own, held, listener, .. } = &mut self;
        held.extend(*own);
        held.drain(..).for_each(|id| honest.close(id, Some(receiver)));
        honest.stop_listening(*listener, Some(receiver));
        self.until(|machine| machine.honest.sockets() == 0);
        let counters = self.service.clients().map(|(.., counters)| counters);
        let left: Vec<_> = counters.map(|one| (one.sockets, one.buffers_bytes)).collect();
        assert_eq!(left, [(0, 0)], "nothing is left of either");
    }
}

/// A client of a TCPIP machine that is sent anything by it, and by another client that it is introduced to.
///
/// # Panics
/// If the client panics, or anything is left over when its sockets are closed.
pub fn tcpip_client(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut patron = Patron::new();
        for _ in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            patron.act(&mut script);
        }
        patron.end();
    }
    watch.stop();
}

/// A client whose machine is hostile.
struct Patron {
    client: Client,
    near: Halves,
    machine: Halves,
    sockets: Vec<ConnectionId>,
    /// Paths to other clients, by the numbers that it has for them, and their other ends.
    peers: Vec<(u32, Halves, Halves)>,
}

/// Paths to other clients at once.
const PEERS_MAX: usize = 3;

/// Sockets that the program has at once.
const SOCKETS_MAX: usize = 12;

impl Patron {
    fn new() -> Patron {
        let [near, machine] = path();
        Patron { client: Client::default(), near, machine, sockets: Vec::new(), peers: Vec::new() }
    }

    fn act(&mut self, script: &mut Script<'_>) {
        match script.below(12) {
            0 => self.open(script),
            1..5 => self.use_socket(script),
            5 if self.client.gone().is_some() => {
                [self.near, self.machine] = path();
                self.client.attach_again();
            }
            6 if script.below(8) == 0 => self.machine.0.sever([0; 16]),
            7 | 8 if !self.peers.is_empty() => {
                let at = script.below(self.peers.len());
                let (_, _, (sender, _)) = &mut self.peers[at];
                say(Voice::Peer, script, sender);
            }
            9 if !self.peers.is_empty() && script.below(8) == 0 => {
                let at = script.below(self.peers.len());
                self.peers[at].2.0.sever([0; 16]);
            }
            _ => {
                let many = 1 + script.below(4);
                (0..many).for_each(|_| say(Voice::Machine, script, &mut self.machine.0));
            }
        }
        self.turn();
    }

    fn open(&mut self, script: &mut Script<'_>) {
        if self.sockets.len() >= SOCKETS_MAX {
            return;
        }
        let to = SocketAddr::new(v4(1), PORT);
        let opened = match script.below(3) {
            0 => self.client.connect(to),
            1 => self.client.listen(to, BACKLOG),
            _ => self.client.bind(to),
        };
        self.sockets.extend(opened);
    }

    /// Any verb on a socket of any kind: those of another kind do nothing.
    fn use_socket(&mut self, script: &mut Script<'_>) {
        if self.sockets.is_empty() {
            return;
        }
        let at = script.below(self.sockets.len());
        let id = self.sockets[at];
        let Patron { client, near: (sender, receiver), sockets, peers, .. } = self;
        let path_to = |peers: &mut Vec<(u32, Halves, Halves)>, at: u32| {
            peers.iter().position(|(peer, ..)| *peer == at)
        };
        let to = SocketAddr::new(v4(1), OTHER_PORT);
        match script.below(16) {
            0 | 1 => {
                let mut target = [0; 5000];
                let count = client.read(id, &mut target, Some(receiver));
                if let Some(peer) = client.source(id) {
                    let receiver = path_to(peers, peer).map(|at| &mut peers[at].1.1);
                    client.read_directly(id, &mut target[count..], receiver);
                }
            }
            2 | 3 => match client.route(id).map(|peer| path_to(peers, peer)) {
                Some(Some(at)) => {
                    let sender = &mut peers[at].1.0;
                    let _ = client.write_directly(id, 3000, sender, |room| room.fill(7));
                }
                Some(None) => {}
                None => match client.write_with(id, 3000, sender, |room| room.fill(7)) {
                    Err(SendError::Severed(severed)) => client.lose_path(severed, receiver),
                    _ => client.has_room(),
                },
            },
            4 => client.shut_sending(id),
            5 => client.shut_receiving(id),
            6 => client.abort(id),
            7 => {
                client.set_no_delay(id, true);
                let (time, interval) = (Duration::from_secs(1), Duration::from_secs(1));
                client.set_keep_alive(id, Some(KeepAlive { time, interval, probes: 3 }));
            }
            8 => {
                let _ = (client.take_end(id), client.readable(id), client.writable(id));
                let _ = (client.peek(id, &mut [0; 100]), client.waiting(id), client.room(id));
            }
            9 => {
                if sockets.len() < SOCKETS_MAX {
                    sockets.extend(client.accept(id).map(|(id, _)| id));
                }
            }
            10 => {
                // One that could not be opened is gone.
                let _ = client.opened(id);
            }
            11 => {
                let _ = client.associate(id, to);
            }
            12 => client.give_up_associating(id),
            13 => {
                let _ = client.send_to(id, to, &[7; 1000], sender);
                let _ = (client.receive_from(id), client.take_refused(id));
            }
            _ => {
                sockets.swap_remove(at);
                client.give_up_opening(id, Some(receiver));
            }
        }
    }

    fn turn(&mut self) {
        let Patron { client, near: (sender, receiver), machine, peers, .. } = self;
        if let Err(SendError::Severed(severed)) = client.flush(sender) {
            client.lose_path(severed, receiver);
        }
        sender.flush();
        receiver.hear(Listen::Now);
        client.take_in(receiver);
        machine.1.hear(Listen::Now);
        while matches!(machine.1.receive(), Ok(Some(_))) {}
        while let Some((at, _)) = client.next_to_meet() {
            match peers.len() < PEERS_MAX {
                true => {
                    let [near, far] = path();
                    peers.push((at, near, far));
                    client.meet(at);
                }
                false => client.put_off_peer(at),
            }
        }
        if let Some(at) = (0..PAIRS).find(|pair| client.expects(*pair, name("C0")))
            && peers.len() < PEERS_MAX
            && peers.iter().all(|(peer, ..)| *peer != at)
        {
            let [near, far] = path();
            peers.push((at, near, far));
            client.meet(at);
        }
        while let Some(at) = client.next_to_look_at() {
            let path = peers.iter_mut().find(|(peer, ..)| *peer == at);
            match path.map(|(_, (_, receiver), _)| client.look_at(at, receiver)) {
                Some(Ok(true)) => {}
                Some(Err(_)) => {
                    client.lose_peer(at);
                    peers.retain(|(peer, ..)| *peer != at);
                }
                Some(Ok(false)) | None => client.has_looked_at(at),
            }
        }
        let is_gone = client.gone().is_some();
        peers.retain_mut(|(at, (sender, receiver), far)| {
            receiver.hear(Listen::Now);
            far.1.hear(Listen::Now);
            while matches!(far.1.receive(), Ok(Some(_))) {}
            let took = client.take_in_from(*at, receiver);
            let _ = client.flush_to(*at, sender);
            sender.flush();
            client.has_room_at(*at);
            if took.is_err() || is_gone {
                client.lose_peer(*at);
            }
            took.is_ok() && !is_gone
        });
    }

    /// The program closes all, and the machine ends.
    fn end(mut self) {
        self.machine.0.sever([0; 16]);
        for _ in 0..DEEDS_MAX {
            self.turn();
        }
        assert!(self.client.gone().is_some(), "the machine has ended");
        let Patron { client, near: (_, receiver), sockets, .. } = &mut self;
        // Those are among them that the machine said were accepted.
        let mut at = 0;
        while at < sockets.len() {
            while let Some((accepted, _)) = client.accept(sockets[at]) {
                sockets.push(accepted);
            }
            at += 1;
        }
        sockets.drain(..).for_each(|id| client.give_up_opening(id, Some(receiver)));
        assert!(client.is_quiet(), "a connection is left");
    }
}
