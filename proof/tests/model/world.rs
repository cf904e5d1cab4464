//! A path, and what is known of it.

use std::collections::{BTreeSet, VecDeque};

use fabric::path::{
    Announced, Claim, CommitError, Counter, InPage, Incoming, Lack, List, ListError, Message,
    NO_DATA, PAGE_BYTES, Reason, Receiver, Ringing, SendError, Sender, Severed, Shared, Terms,
};
use fabric::queue::{Entry, EntryFlags, IN_PLACE_BYTES_MAX, Sequence};
use os::doorbell::Listen;
use os::storage::StorageOptions;
use proof::honest::{Pair, body, pair, shown_pair};

use super::deeds::{Deed, Way};
use super::returns::Returns;

/// Bytes of a large message or a list that one call copies.
const COPIED_PER_CALL: usize = 1 << 20;

/// How a path ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    SenderSevers([u8; 16]),
    SenderDrops,
    ReceiverSevers([u8; 16]),
    ReceiverDrops,
}

/// What is longer goes in a buffer of its own.
const PACKABLE_BYTES_MAX: usize = 4 << 10;

/// A message that was sent.
#[derive(Clone, Debug)]
struct Sent {
    number: usize,
    head: usize,
    bytes: usize,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Usual,
    /// Large: it is announced.
    Large,
    List {
        entries: Vec<(Entry, usize)>,
        cookie: Option<u64>,
    },
}

impl Sent {
    fn head(&self) -> &'static [u8] {
        body(self.number + 7, self.head)
    }

    fn body(&self) -> Vec<u8> {
        match &self.kind {
            Kind::List { entries, .. } => entries.iter().flat_map(in_shared).copied().collect(),
            _ => body(self.number, self.bytes).to_vec(),
        }
    }

    /// Bytes that are copied bit by bit when all of it is received.
    fn copied_bytes(&self) -> usize {
        match &self.kind {
            Kind::Usual => 0,
            Kind::Large => self.bytes,
            Kind::List { entries, .. } => {
                entries.iter().map(|(entry, _)| entry.length as usize).sum()
            }
        }
    }

    fn cookie(&self) -> Option<u64> {
        if let Kind::List { cookie, .. } = &self.kind { *cookie } else { None }
    }

    /// Bytes that it takes of the window until its buffer comes back.
    fn window_bytes(&self) -> usize {
        let bytes = self.head + self.bytes;
        let is_in_page = matches!(self.kind, Kind::Usual);
        if is_in_page && bytes > IN_PLACE_BYTES_MAX { bytes } else { 0 }
    }

    /// Bytes of the page that it has for itself, as far as we know: what is short may be one of a pack, and
    /// copied with the others.
    fn own_page_bytes(&self) -> usize {
        if self.bytes > PACKABLE_BYTES_MAX { self.window_bytes() } else { 0 }
    }

    /// Whether it keeps storage of the sender's in use until it is given back.
    fn keeps_storage(&self) -> bool {
        self.own_page_bytes() > 0 || !matches!(self.kind, Kind::Usual)
    }
}

/// What an entry points to: storage of the user's is filled with the message of its own number.
fn in_shared((entry, number): &(Entry, usize)) -> &'static [u8] {
    &body(*number, 50_000 + PAGE_BYTES)[entry.offset as usize..][..entry.length as usize]
}

/// A message that was taken and not given back, with the hand-over whose buffer it keeps.
#[derive(Debug)]
enum Held {
    InPage(InPage, Sequence),
    Announced(Announced),
    List(List, Sequence),
}

impl Held {
    fn sequence(&self) -> Option<Sequence> {
        match self {
            Held::InPage(_, sequence) | Held::List(_, sequence) => Some(*sequence),
            Held::Announced(_) => None,
        }
    }
}

const OURS: &str = "the half that gave it out takes it back";

/// Storage of the user's own.
struct Own {
    _shared: Shared,
    segment: u16,
    bytes: usize,
    number: usize,
}

/// A path, and what is known of it.
pub struct World {
    sender: Sender,
    receiver: Receiver,
    _back: (fabric::path::Halves, fabric::path::Halves),
    terms: Terms,
    /// Messages that were sent and not received.
    sent: VecDeque<Sent>,
    /// Of these, messages at the end that may not have been handed over yet.
    pushed: usize,
    /// Messages sent and received so far.
    numbers: usize,
    received: usize,
    claims: Vec<(Claim, Sent)>,
    shared: Vec<Own>,
    held: Vec<(Held, Sent)>,
    /// What was copied so far of the message that is next.
    begun_bytes: usize,
    returns: Returns,
    cookies: BTreeSet<u64>,
    is_quiet: bool,
    ringing: Ringing,
    sender_sleeps: bool,
    receiver_sleeps: bool,
    /// What was shown as returned, and whether it was quiet, when the sender went to sleep.
    asleep_since: (u64, bool),
    /// Whether the sender sleeps because a message was refused.
    was_refused: bool,
    /// Whether the last refusal of all was for quiet.
    refused_for_quiet: bool,
}

impl World {
    pub fn new(terms: Terms) -> World {
        let (Pair { sender, receiver, back }, shown) = shown_pair(terms);
        World {
            sender,
            receiver,
            _back: back,
            terms,
            sent: VecDeque::new(),
            pushed: 0,
            numbers: 0,
            received: 0,
            claims: Vec::new(),
            shared: Vec::new(),
            held: Vec::new(),
            begun_bytes: 0,
            returns: Returns::new(shown),
            cookies: BTreeSet::new(),
            is_quiet: false,
            ringing: Ringing::Now,
            sender_sleeps: false,
            receiver_sleeps: false,
            asleep_since: (0, false),
            was_refused: false,
            refused_for_quiet: false,
        }
    }

    /// Does one deed to the path and to the model, and compares what they answer. Whoever sleeps does
    /// nothing until it is rung for, or has something to do of its own.
    pub fn act(&mut self, deed: Deed) {
        match deed {
            Deed::SenderWakes => self.wake_sender(),
            Deed::ReceiverWakes => self.wake_receiver(),
            Deed::Receive
            | Deed::Poll(_)
            | Deed::PollShort
            | Deed::ReadHeld(..)
            | Deed::GiveBackHeld(_)
            | Deed::Quiesce
            | Deed::Resume
            | Deed::TrimReceiver
            | Deed::ReceiverSleeps => {
                if !self.receiver_sleeps {
                    self.receivers_deed(deed);
                }
            }
            _ => {
                if !self.sender_sleeps {
                    self.senders_deed(deed);
                }
            }
        }
        self.assert_within_terms();
        let (taken, held) = (self.taken(), self.held_sequences());
        self.returns.check(taken, &held);
        self.assert_woken();
    }

    /// Hand-overs that the receiver has taken.
    fn taken(&mut self) -> u64 {
        self.receiver.counters().get(Counter::Buffers)
    }

    fn held_sequences(&self) -> Vec<Sequence> {
        self.held.iter().filter_map(|(held, _)| held.sequence()).collect()
    }

    fn senders_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Send { way, head, bytes } => {
                self.send(way, head, bytes);
            }
            Deed::Claim { head, bytes } => self.claim(head, bytes),
            Deed::Commit(which, bytes) => self.commit(which, bytes),
            Deed::Cancel(which) => {
                if let Some((claim, _)) = pick(&mut self.claims, which) {
                    self.sender.cancel(claim).expect(OURS);
                }
            }
            Deed::LendShared(bytes) => self.lend_shared(bytes),
            Deed::RetireShared(which) => self.retire_shared(which),
            Deed::SendList { shared, bytes, cookie } => self.send_list(&shared, bytes, cookie),
            Deed::Complete => {
                let completed = self.sender.completed();
                let known = completed.is_some_and(|cookie| self.cookies.remove(&cookie));
                assert_eq!(known, completed.is_some(), "{completed:?}");
                assert!(known || self.cookies.is_empty(), "{:?} came back", self.cookies);
            }
            Deed::Flush => {
                self.sender.flush();
                assert_eq!(self.sender.unrung(), 0, "nothing is left to do");
                self.pushed = 0;
            }
            Deed::Publish => {
                self.sender.publish();
                self.pushed = 0;
            }
            Deed::Ring => self.sender.ring(),
            Deed::SetRinging(ringing) => {
                // It is about what is handed over from now on.
                self.sender.ring();
                self.ringing = ringing;
                self.sender.set_ringing(ringing);
            }
            Deed::TrimSender => {
                self.sender.trim();
                self.pushed = 0;
            }
            _ => self.sender_sleeps(),
        }
        assert_eq!(self.sender.counters().get(Counter::Messages), self.numbers as u64);
    }

    fn receivers_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Receive => {
                self.receive();
            }
            Deed::Poll(copied_bytes_max) => {
                self.poll(copied_bytes_max);
            }
            Deed::PollShort => self.poll_short(),
            Deed::ReadHeld(which, bytes) => self.read_held(which, bytes),
            Deed::GiveBackHeld(which) => {
                if let Some((held, sent)) = pick(&mut self.held, which) {
                    self.give_back(held, &sent);
                }
            }
            Deed::Quiesce => {
                self.receiver.quiesce();
                self.is_quiet = true;
            }
            Deed::Resume => {
                self.receiver.resume();
                self.is_quiet = false;
            }
            Deed::TrimReceiver => self.receiver.trim(),
            _ => self.receiver_sleeps(),
        }
        // What was begun was given out, as far as the receiver is concerned.
        let received = self.received + usize::from(self.begun_bytes > 0);
        assert_eq!(self.receiver.counters().get(Counter::Messages), received as u64);
        if let Some(point) = self.receiver.known_point() {
            assert_eq!((point, self.is_quiet), (self.received as u64, true));
        }
    }

    fn next(&self, head: usize, bytes: usize) -> Sent {
        let kind = if head + bytes > PAGE_BYTES { Kind::Large } else { Kind::Usual };
        Sent { number: self.numbers, head, bytes, kind }
    }

    /// A message was sent: it is in the receiver's hands unless it `may_wait`.
    fn remember(&mut self, sent: Sent, may_wait: bool) {
        self.sent.push_back(sent);
        self.numbers += 1;
        self.pushed = if may_wait { self.pushed + 1 } else { 0 };
    }

    /// Sends a message, and returns whether it went.
    fn send(&mut self, way: Way, head: usize, bytes: usize) -> bool {
        let sent = self.next(head, bytes);
        let (head, whole) = (sent.head(), body(sent.number, bytes));
        let build = |target: &mut [u8]| target.copy_from_slice(whole);
        let result = match way {
            Way::Send => self.sender.send(head, whole),
            Way::SendBuilt => self.sender.send_built(head, bytes, build),
            Way::Push => self.sender.push(head, whole),
        };
        match result {
            Ok(()) => {
                // What goes into a pack that is open goes without a load of the peer's words.
                assert!(!self.is_quiet || self.pushed > 0, "a quiet path takes nothing");
                self.remember(sent, way.may_wait() && bytes <= PACKABLE_BYTES_MAX);
            }
            Err(error) => {
                self.assert_refused(error, sent.head + bytes, bytes);
                if !way.may_wait() && matches!(error, SendError::Full | SendError::Quiesced) {
                    // As a program does that has nothing else to do.
                    self.was_refused = true;
                    self.sender_sleeps();
                }
            }
        }
        result.is_ok()
    }

    /// A refusal has a reason that the model knows.
    fn assert_refused(&mut self, error: SendError, length: usize, bytes: usize) {
        match error {
            SendError::Full => {
                assert!(!self.is_empty(), "nothing is out, yet {bytes} bytes were refused");
                self.note_refusal(error);
            }
            SendError::TooLong { most } => {
                assert_eq!(most, self.terms.message_bytes_max());
                assert!(length > PAGE_BYTES && bytes as u64 > most);
            }
            SendError::Quiesced => {
                assert!(self.is_quiet);
                self.note_refusal(error);
            }
            SendError::Lacking(lack) => self.assert_lacking(lack),
            SendError::Severed(severed) => panic!("{severed}"),
        }
        // A refusal hands over what was pushed before, or leaves it where it is: both are allowed.
    }

    /// What is lacking is storage that may be lent, and nothing that is out will bring it back.
    fn assert_lacking(&self, lack: Lack) {
        assert_eq!(lack, Lack::Storage { most: self.terms.storage_bytes_max });
        assert!(self.terms.storage_bytes_max < Terms::DEFAULT.storage_bytes_max);
        let handed_over = self.sent.len() - self.pushed;
        let out = self.sent.iter().take(handed_over).filter(|sent| sent.keeps_storage());
        let out = out.chain(self.held.iter().map(|(_, sent)| sent)).next();
        assert!(out.is_none(), "{out:?} will come back, and storage with it");
    }

    /// Takes note of what would have to change for another try.
    fn note_refusal(&mut self, error: SendError) {
        assert!(matches!(error, SendError::Full | SendError::Quiesced), "{error}");
        self.refused_for_quiet = error == SendError::Quiesced;
    }

    fn note_list_refusal(&mut self, error: ListError) {
        match error {
            ListError::Send(SendError::Lacking(lack)) => self.assert_lacking(lack),
            ListError::Send(error) => self.note_refusal(error),
            error => panic!("{error}"),
        }
    }

    /// Whether everything was received and given back, and the sender can know it.
    fn is_empty(&mut self) -> bool {
        let taken = self.taken();
        self.sent.is_empty()
            && self.held.is_empty()
            && self.returns.withheld(taken) == 0
            && !self.receiver.is_ready()
    }

    fn claim(&mut self, head: usize, bytes: usize) {
        let sent = self.next(head, bytes);
        match self.sender.claim(body(7, head), bytes) {
            Ok(claim) => {
                assert_eq!(claim.bytes(), bytes);
                self.claims.push((claim, Sent { number: 0, ..sent }));
                self.pushed = 0;
            }
            Err(error) => self.assert_refused(error, head + bytes, bytes),
        }
    }

    fn commit(&mut self, which: u16, shorter: Option<usize>) {
        let Some((mut claim, mut sent)) = pick(&mut self.claims, which) else { return };
        if let Some(bytes) = shorter {
            claim.truncate(bytes);
            sent.bytes = sent.bytes.min(bytes);
        }
        // Its head was fixed when it was claimed, as that of message 0; its body is made now.
        let number = 1024 * self.numbers;
        let room = self.sender.claimed(&mut claim).expect(OURS);
        room.copy_from_slice(body(number, sent.bytes));
        match self.sender.commit(claim) {
            Ok(()) => self.remember(Sent { number, ..sent }, false),
            Err((CommitError::NotOurs, _)) => panic!("{OURS}"),
            Err((CommitError::Send(error), claim)) => {
                self.note_refusal(error);
                self.claims.push((claim, sent));
            }
        }
    }

    fn lend_shared(&mut self, bytes: usize) {
        let number = 1000 + self.numbers;
        let mut shared = Shared::create(bytes, StorageOptions::default()).unwrap();
        let whole = shared.bytes_mut();
        whole.copy_from_slice(body(number, whole.len()));
        let bytes = whole.len();
        match self.sender.lend_shared(&shared) {
            Ok(segment) => self.shared.push(Own { _shared: shared, segment, bytes, number }),
            Err(error) => self.note_list_refusal(error.into()),
        }
    }

    fn retire_shared(&mut self, which: u16) {
        let Some(own) = pick(&mut self.shared, which) else { return };
        match self.sender.retire_shared(own.segment) {
            // Lists that are out, or held, keep what it holds.
            Ok(()) => drop(own),
            Err(error) => {
                self.note_list_refusal(error);
                self.shared.push(own);
            }
        }
    }

    fn send_list(&mut self, shared: &[u16], bytes: u32, cookie: bool) {
        if self.shared.is_empty() {
            return;
        }
        let entries: Vec<(Entry, usize)> = shared
            .iter()
            .map(|which| {
                let own = &self.shared[usize::from(*which) % self.shared.len()];
                let length = bytes.min(own.bytes as u32);
                let offset = u64::from(*which) % (own.bytes as u64 - u64::from(length) + 1);
                let (segment, flags, metadata) = (own.segment, EntryFlags::FIRST, bytes);
                (Entry { segment, offset, length, flags, metadata }, own.number)
            })
            .collect();
        let named: Vec<Entry> = entries.iter().map(|(entry, _)| *entry).collect();
        let cookie = cookie.then_some(self.numbers as u64);
        let note = self.numbers as u8;
        match self.sender.send_list(note, &named, cookie) {
            Ok(()) => {
                let kind = Kind::List { entries, cookie };
                let sent = Sent { number: self.numbers, head: 0, bytes: 0, kind };
                self.remember(sent, false);
            }
            Err(error) => self.note_list_refusal(error),
        }
    }

    /// The message that must be there now, if one must.
    fn due(&self) -> Option<&Sent> {
        self.sent.front().filter(|_| self.sent.len() > self.pushed)
    }

    fn take_due(&mut self) -> Sent {
        let sent = self.sent.pop_front().expect("a message that was never sent");
        // One that was pushed and is there was handed over, and so were those before it.
        self.pushed = self.pushed.min(self.sent.len());
        self.received += 1;
        sent
    }

    /// What came is what was sent.
    fn verify(&mut self, head: &[u8], body: &[u8]) -> Sent {
        let sent = self.take_due();
        assert_eq!(head, sent.head(), "head of message {}", sent.number);
        assert!(body == sent.body(), "body of message {sent:?}");
        sent
    }

    /// Receives a message, and returns whether there was one, or more of one.
    fn receive(&mut self) -> bool {
        let due = self.due().cloned();
        match self.receiver.receive() {
            Ok(Some(Message { head, body })) => {
                let (head, body) = (head.to_vec(), body.to_vec());
                let sent = self.verify(&head, &body);
                let left = sent.copied_bytes().saturating_sub(self.begun_bytes);
                assert!(left <= COPIED_PER_CALL, "{left} bytes were copied in one call");
                self.begun_bytes = 0;
                self.returns.done_with(sent.own_page_bytes());
                self.cookies.extend(sent.cookie());
                true
            }
            Ok(None) => {
                let left = due.as_ref().map_or(0, Sent::copied_bytes) - self.begun_bytes;
                if left > COPIED_PER_CALL {
                    self.begun_bytes += COPIED_PER_CALL;
                    assert!(self.receiver.is_ready(), "for the rest of it");
                    return true;
                }
                assert!(due.is_none(), "{due:?} is not there");
                self.assert_returned();
                false
            }
            Err(severed) => panic!("{severed}"),
        }
    }

    /// Nothing is left to take: all that was done with is returned.
    fn assert_returned(&mut self) {
        let (taken, held) = (self.taken(), self.held_sequences());
        self.returns.assert_shown(taken, &held);
    }

    /// Takes what is at hand and short.
    fn poll_short(&mut self) {
        if let Some(message) = self.receiver.poll_short().unwrap() {
            assert_eq!(self.begun_bytes, 0, "what was begun comes first");
            let Message { head, body } = self.receiver.message(message);
            let (head, body) = (head.to_vec(), body.to_vec());
            let sent = self.verify(&head, &body);
            assert!(matches!(sent.kind, Kind::Usual), "{sent:?} is not at hand");
        }
    }

    /// Takes what comes next, and returns whether there was something.
    fn poll(&mut self, copied_bytes_max: usize) -> bool {
        let due = self.due().cloned();
        let polled = self.receiver.poll(copied_bytes_max);
        let sequence = Returns::newest(self.taken().max(1));
        let held = match polled {
            Ok(Some(Incoming::Message(message))) => {
                let Message { head, body } = self.receiver.message(message);
                let (head, body) = (head.to_vec(), body.to_vec());
                let sent = self.verify(&head, &body);
                let may_be_packed = sent.bytes <= PACKABLE_BYTES_MAX;
                let fits = sent.window_bytes() <= copied_bytes_max;
                assert!(may_be_packed || fits, "{sent:?} was copied");
                self.returns.done_with(sent.own_page_bytes());
                return true;
            }
            Ok(Some(Incoming::InPage(message))) => {
                let bytes = message.view().bytes();
                assert!(bytes > copied_bytes_max, "{bytes} bytes were not copied");
                Held::InPage(message, sequence)
            }
            Ok(Some(Incoming::Announced(message))) => Held::Announced(message),
            Ok(Some(Incoming::List(list))) => Held::List(list, sequence),
            Ok(None) => {
                assert!(due.is_none(), "{due:?} is not there");
                self.assert_returned();
                return false;
            }
            Err(severed) => panic!("{severed}"),
        };
        // It is taken in its place, and from its start, though it was begun.
        self.begun_bytes = 0;
        let sent = self.take_due();
        match &held {
            Held::InPage(message, _) => {
                assert_eq!(message.head_bytes(), sent.head);
                assert_eq!(message.body_bytes(), sent.bytes);
            }
            Held::Announced(message) => {
                assert_eq!((message.head(), message.body_bytes()), (sent.head(), sent.bytes));
                assert_eq!(message.pulled_bytes(), 0);
            }
            Held::List(list, _) => {
                let Kind::List { entries, .. } = &sent.kind else { panic!("{sent:?} is no list") };
                assert_eq!(list.note(), sent.number as u8);
                assert!(list.entries().eq(entries.iter().map(|(entry, _)| entry)), "{list:?}");
            }
        }
        self.held.push((held, sent));
        true
    }

    /// Reads what is held: it is as it was sent, until it is given back.
    fn read_held(&mut self, which: u16, bytes: usize) {
        let Some((mut held, sent)) = pick(&mut self.held, which) else { return };
        self.read(&mut held, &sent, bytes);
        self.held.push((held, sent));
    }

    fn read(&mut self, held: &mut Held, sent: &Sent, bytes: usize) {
        match held {
            Held::InPage(message, _) => {
                let mut whole = vec![0; sent.head + sent.bytes];
                message.view().read(0, &mut whole).unwrap();
                assert!(whole == [sent.head(), &sent.body()].concat(), "{sent:?}");
                assert!(message.view().read(1, &mut whole).is_err(), "no byte beyond it");
            }
            Held::Announced(message) => {
                let at = message.pulled_bytes();
                let mut piece = vec![0; bytes];
                let pulled = self.receiver.pull(message, &mut piece).unwrap();
                assert_eq!(pulled, bytes.min(sent.bytes - at));
                assert!(piece[..pulled] == body(sent.number, sent.bytes)[at..at + pulled]);
            }
            Held::List(list, _) => {
                let Kind::List { entries, .. } = &sent.kind else { panic!("{sent:?} is no list") };
                for (index, entry) in entries.iter().enumerate() {
                    let view = list.view(index).expect("as many as entries");
                    let mut read = vec![0; view.bytes()];
                    view.read(0, &mut read).unwrap();
                    assert!(read == in_shared(entry), "entry {index} of {sent:?}");
                }
            }
        }
    }

    fn give_back(&mut self, mut held: Held, sent: &Sent) {
        self.read(&mut held, sent, sent.bytes);
        match held {
            Held::InPage(message, sequence) => {
                self.receiver.give_back(message).expect(OURS);
                if sequence.next().0 == self.taken() {
                    self.returns.done_with(sent.own_page_bytes());
                }
            }
            Held::Announced(message) => self.receiver.release(message).expect(OURS),
            Held::List(list, _) => self.receiver.give_back_list(list).expect(OURS),
        }
        self.cookies.extend(sent.cookie());
    }

    fn sender_sleeps(&mut self) {
        while self.sender.hear(Listen::Now) > 0 {}
        self.sender.announce_sleep();
        self.pushed = 0;
        let is_ready = self.sender.is_ready();
        if self.is_quiet {
            // Quiet is news, but for those who know of it.
            assert_eq!(is_ready, !self.refused_for_quiet);
        }
        if is_ready {
            self.sender.wake();
        } else {
            self.sender_sleeps = true;
            self.asleep_since = (self.returns.progress(), self.is_quiet);
        }
    }

    fn receiver_sleeps(&mut self) {
        while self.receiver.hear(Listen::Now) > 0 {}
        self.receiver.announce_sleep();
        self.assert_returned();
        if self.receiver.is_ready() {
            self.receiver.wake();
        } else {
            self.receiver_sleeps = true;
        }
    }

    fn wake_sender(&mut self) {
        self.was_refused = false;
        if std::mem::take(&mut self.sender_sleeps) {
            self.sender.wake();
        }
    }

    fn wake_receiver(&mut self) {
        if std::mem::take(&mut self.receiver_sleeps) {
            self.receiver.wake();
        }
    }

    /// Whoever sleeps and has something to do was rung for.
    fn assert_woken(&mut self) {
        let is_due = self.ringing == Ringing::Now || self.sender.unrung() == 0;
        if self.receiver_sleeps && self.receiver.is_ready() && is_due {
            assert!(self.receiver.hear(Listen::Now) > 0, "a message is there and nobody rang");
            self.wake_receiver();
        }
        if self.sender_sleeps && self.sender.is_ready() {
            // Storage is taken in with a buffer whose return may be withheld for a while.
            let taken = self.taken();
            let may_wait = self.returns.withheld(taken) > 0
                && (self.returns.progress(), self.is_quiet) == self.asleep_since;
            let is_rung = self.sender.hear(Listen::Now) > 0;
            assert!(is_rung || may_wait, "there is room and nobody rang");
            if is_rung {
                self.wake_sender();
            }
        }
        if self.sender_sleeps && self.was_refused && !self.is_quiet {
            assert!(!self.is_empty(), "nothing is out, yet the sender waits for something");
        }
    }

    fn assert_within_terms(&mut self) {
        let lent = self.sender.counters().get(Counter::LentBytes);
        assert!(lent <= self.terms.storage_bytes_max, "{lent} bytes are lent");
        let borrowed = self.receiver.counters().get(Counter::LentBytes);
        assert!(borrowed <= self.terms.peer_storage_bytes_max, "{borrowed} bytes are borrowed");
        let held = self.held.iter().map(|(_, sent)| sent);
        let out = self.sent.iter().chain(held).map(Sent::window_bytes).sum::<usize>();
        // One message, and one pack, that were begun when the window was not full.
        let most = self.terms.window_bytes + PAGE_BYTES + (16 << 10);
        assert!(out <= most, "{out} bytes are out");
    }

    /// Receives and gives back all that was sent.
    pub fn empty(&mut self) {
        self.wake_receiver();
        self.receiver.resume();
        self.is_quiet = false;
        while self.receive() {}
        for (held, sent) in std::mem::take(&mut self.held) {
            self.give_back(held, &sent);
        }
        self.assert_woken();
        self.wake_sender();
        self.sender.hear(Listen::Now);
        for (claim, _) in std::mem::take(&mut self.claims) {
            self.sender.cancel(claim).expect(OURS);
        }
        self.sender.flush();
        self.pushed = 0;
        while self.receive() {}
        while !self.shared.is_empty() {
            self.retire_shared(0);
            while self.receive() {}
        }
        assert_eq!((self.sent.len(), self.numbers), (0, self.received));
        self.returns.audit(&[]);
    }

    /// Sends a message and receives it, sleeping on either side as programs do.
    pub fn pass_one(&mut self, bytes: usize) {
        if bytes as u64 > self.terms.message_bytes_max() && bytes > PAGE_BYTES {
            return;
        }
        if !self.send(Way::Send, 0, bytes) {
            // Storage that is given up for it counts until the receiver has forgotten it.
            assert!(!self.receive());
            self.assert_woken();
            assert!(self.send(Way::Send, 0, bytes), "a path that is empty takes {bytes} bytes");
        }
        while self.received < self.numbers {
            assert!(self.receive());
        }
        assert!(!self.receive());
    }

    /// Two periods without use, and no storage is lent.
    pub fn assert_nothing_is_lent(&mut self) {
        self.sender.trim();
        while self.receive() {}
        assert!(!self.sender.trim(), "nothing is left to keep");
        assert!(!self.receive());
        assert_eq!(self.sender.counters().get(Counter::LentBytes), 0);
        assert_eq!(self.receiver.counters().get(Counter::LentBytes), 0);
    }

    /// Ends the path in one way or another. What was sent before is received all the same.
    pub fn end(mut self, end: End) {
        self.wake_receiver();
        self.wake_sender();
        match end {
            End::SenderSevers(data) => {
                self.sender.sever(data);
                assert_eq!(self.sender.ended(), Some(Severed { reason: Reason::Ours, data }));
                self.drain(Severed { reason: Reason::Peer, data });
            }
            End::SenderDrops => {
                let World { sender, .. } = &mut self;
                // A path of its own in its place, which nobody uses.
                let other = pair(Terms::DEFAULT);
                drop(std::mem::replace(sender, other.sender));
                self.drain(Severed { reason: Reason::Gone, data: NO_DATA });
            }
            End::ReceiverSevers(data) => {
                // What goes into a pack that is open goes without a load of the peer's words.
                self.sender.flush();
                self.receiver.sever(data);
                let severed = Severed { reason: Reason::Peer, data };
                assert_eq!(self.sender.send(&[], b"x"), Err(SendError::Severed(severed)));
                let ours = Severed { reason: Reason::Ours, data };
                assert_eq!(self.receiver.receive(), Err(ours));
            }
            End::ReceiverDrops => {
                let other = pair(Terms::DEFAULT);
                drop(std::mem::replace(&mut self.receiver, other.receiver));
                while self.sender.ended().is_none() {
                    self.sender.hear(Listen::Forever);
                }
                let severed = Severed { reason: Reason::Gone, data: NO_DATA };
                assert_eq!(self.sender.send(&[], b"x"), Err(SendError::Severed(severed)));
                assert!(self.sender.is_ready(), "nobody sleeps on a path that has ended");
            }
        }
    }

    /// All that was sent is received, in order and once, and then the end.
    fn drain(&mut self, end: Severed) {
        self.pushed = 0;
        while !self.sent.is_empty() {
            // Half of them taken and held, half of them received.
            let found =
                if self.sent.len().is_multiple_of(2) { self.poll(0) } else { self.receive() };
            assert!(found);
        }
        for (held, sent) in std::mem::take(&mut self.held) {
            self.give_back(held, &sent);
        }
        while self.receiver.receive() == Ok(None) {
            self.receiver.hear(Listen::Now);
        }
        assert_eq!(self.receiver.receive(), Err(end));
    }
}

/// Takes one out, whichever `which` means.
fn pick<T>(all: &mut Vec<T>, which: u16) -> Option<T> {
    (!all.is_empty()).then(|| all.remove(usize::from(which) % all.len()))
}
