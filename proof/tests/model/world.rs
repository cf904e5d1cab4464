//! A path, and what is known of it.

use std::collections::{BTreeSet, VecDeque};

use fabric::path::{
    Announced, Counter, InPage, Incoming, Lent, List, PAGE_BYTES, PullError, Reason, Receiver,
    Ringing, SendError, Sender, Severed, Shared, Terms, Waiting,
};
use fabric::queue::{Entry, EntryFlags, IN_PLACE_BYTES_MAX};
use os::doorbell::Listen;
use os::storage::StorageOptions;
use proof::honest::{Pair, body, pair};

use super::deeds::{Deed, Way};

/// How a path ends.
#[derive(Clone, Copy, Debug)]
pub enum End {
    SenderSevers([u8; 16]),
    SenderDrops,
    ReceiverSevers([u8; 16]),
    ReceiverDrops,
}

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
    /// Large and built by ourselves, so that it has a name to withdraw it by.
    Large {
        waiting: Waiting,
        withdrawn: bool,
    },
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

    fn is_withdrawn(&self) -> bool {
        matches!(self.kind, Kind::Large { withdrawn: true, .. })
    }

    fn is(&self, name: Waiting) -> bool {
        matches!(self.kind, Kind::Large { waiting, .. } if waiting == name)
    }

    fn cookie(&self) -> Option<u64> {
        if let Kind::List { cookie, .. } = &self.kind { *cookie } else { None }
    }

    /// Bytes that it takes of the window until its buffer comes back.
    fn window_bytes(&self) -> usize {
        let bytes = self.head + self.bytes;
        let is_in_page = matches!(self.kind, Kind::Usual) && bytes <= PAGE_BYTES;
        if is_in_page && bytes > IN_PLACE_BYTES_MAX { bytes } else { 0 }
    }
}

/// What an entry points to: storage of the user's is filled with the message of its own number.
fn in_shared((entry, number): &(Entry, usize)) -> &'static [u8] {
    &body(*number, 50_000 + PAGE_BYTES)[entry.offset as usize..][..entry.length as usize]
}

/// A message that was taken and not given back.
#[derive(Debug)]
enum Held {
    InPage(InPage),
    Announced(Announced),
    List(List),
}

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
    lents: Vec<(Lent, Sent)>,
    waiting: Vec<Waiting>,
    shared: Vec<Own>,
    held: Vec<(Held, Sent)>,
    /// What was received last: its buffer is given back when the next is asked for.
    owed: Option<Sent>,
    cookies: BTreeSet<u64>,
    is_quiet: bool,
    ringing: Ringing,
    sender_sleeps: bool,
    receiver_sleeps: bool,
    /// Whether the sender sleeps because a message was refused.
    was_refused: bool,
    /// Whether the last refusal of all was for quiet.
    refused_for_quiet: bool,
}

impl World {
    pub fn new(terms: Terms) -> World {
        let Pair { sender, receiver, back } = pair(terms);
        World {
            sender,
            receiver,
            _back: back,
            terms,
            sent: VecDeque::new(),
            pushed: 0,
            numbers: 0,
            received: 0,
            lents: Vec::new(),
            waiting: Vec::new(),
            shared: Vec::new(),
            held: Vec::new(),
            owed: None,
            cookies: BTreeSet::new(),
            is_quiet: false,
            ringing: Ringing::Now,
            sender_sleeps: false,
            receiver_sleeps: false,
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
            | Deed::Take
            | Deed::ReadHeld(..)
            | Deed::GiveBackHeld(_)
            | Deed::Quiesce
            | Deed::Resume
            | Deed::TidyReceiver
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
        self.assert_woken();
    }

    fn senders_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Send { way, head, bytes } => {
                self.send(way, head, bytes);
            }
            Deed::Lend { head, bytes } => self.lend(head, bytes),
            Deed::SendLent(which) => self.send_lent(which),
            Deed::CancelLent(which) => {
                if let Some((lent, _)) = pick(&mut self.lents, which) {
                    self.sender.cancel(lent);
                }
            }
            Deed::Withdraw(which) => self.withdraw(which),
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
            Deed::TidySender => {
                self.sender.tidy();
                self.pushed = 0;
            }
            _ => self.sender_sleeps(),
        }
        assert_eq!(self.sender.messages(), self.numbers as u64);
    }

    fn receivers_deed(&mut self, deed: Deed) {
        match deed {
            Deed::Receive => {
                self.receive();
            }
            Deed::Take => {
                self.take();
            }
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
            Deed::TidyReceiver => self.receiver.tidy(),
            _ => self.receiver_sleeps(),
        }
        assert_eq!(self.receiver.messages(), self.received as u64);
        if let Some(point) = self.receiver.known_point() {
            assert_eq!((point, self.is_quiet), (self.received as u64, true));
        }
    }

    fn next(&self, head: usize, bytes: usize) -> Sent {
        Sent { number: self.numbers, head, bytes, kind: Kind::Usual }
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
            Way::Send => self.sender.send_with(head, whole),
            Way::SendBuilt => self.sender.send_built(head, bytes, build),
            Way::Push => self.sender.push_with(head, whole),
            Way::PushBuilt => self.sender.push_built(head, bytes, build),
        };
        match result {
            Ok(()) => {
                // What goes into a pack that is open goes without a look at the other side.
                assert!(!self.is_quiet || self.pushed > 0, "a quiet path takes nothing");
                self.remember(sent, way.may_wait());
            }
            Err(error) => {
                self.assert_refused(error, sent.head + bytes, bytes);
                if !way.may_wait() && !matches!(error, SendError::TooLong { .. }) {
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
            SendError::Severed(severed) => panic!("{severed}"),
        }
        // A refusal hands over what was pushed before, or leaves it where it is: both are allowed.
    }

    /// Takes note of what would have to change for another try.
    fn note_refusal(&mut self, error: SendError) {
        assert!(matches!(error, SendError::Full | SendError::Quiesced), "{error}");
        self.refused_for_quiet = error == SendError::Quiesced;
    }

    /// Whether everything was received and given back, and there is storage for any message.
    fn is_empty(&self) -> bool {
        let is_ample = self.terms.storage_bytes_max == Terms::default().storage_bytes_max;
        self.sent.is_empty()
            && self.held.is_empty()
            && self.owed.is_none()
            && (is_ample || (self.lents.is_empty() && self.shared.is_empty()))
            && !self.receiver.is_ready()
    }

    fn lend(&mut self, head: usize, bytes: usize) {
        let sent = self.next(head, bytes);
        match self.sender.lend(body(7, head), bytes) {
            Ok(lent) => {
                assert_eq!(lent.bytes(), bytes);
                self.lents.push((lent, Sent { number: 0, ..sent }));
                self.pushed = 0;
            }
            Err(error) => self.assert_refused(error, head + bytes, bytes),
        }
    }

    fn send_lent(&mut self, which: u16) {
        let Some((mut lent, mut sent)) = pick(&mut self.lents, which) else { return };
        // Its head was fixed when it was lent, as that of message 0; its body is made now.
        sent.number = 1024 * self.numbers;
        self.sender.lent_bytes(&mut lent).copy_from_slice(body(sent.number, sent.bytes));
        match self.sender.send_lent(lent) {
            Ok(waiting) => {
                if let Some(waiting) = waiting {
                    sent.kind = Kind::Large { waiting, withdrawn: false };
                    self.waiting.push(waiting);
                }
                self.remember(sent, false);
            }
            Err((error, lent)) => {
                self.note_refusal(error);
                self.lents.push((lent, sent));
            }
        }
    }

    fn withdraw(&mut self, which: u16) {
        let Some(waiting) = pick(&mut self.waiting, which) else { return };
        let held = self.held.iter_mut().map(|(_, sent)| sent);
        let out = self.sent.iter_mut().chain(held).find(|sent| sent.is(waiting));
        assert_eq!(self.sender.withdraw(waiting), out.is_some());
        if let Some(sent) = out {
            sent.kind = Kind::Large { waiting, withdrawn: true };
            assert!(self.sender.is_waiting(waiting), "until the receiver has released it");
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
            Err(error) => self.note_refusal(error),
        }
    }

    fn retire_shared(&mut self, which: u16) {
        let Some(own) = pick(&mut self.shared, which) else { return };
        match self.sender.retire_shared(own.segment) {
            // Lists that are out, or held, keep what it holds.
            Ok(()) => drop(own),
            Err(error) => {
                self.note_refusal(error);
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
            Err(error) => self.note_refusal(error),
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

    fn give_back_owed(&mut self) {
        if let Some(owed) = self.owed.take() {
            self.cookies.extend(owed.cookie());
        }
    }

    /// Receives a message, and returns whether there was one.
    fn receive(&mut self) -> bool {
        self.give_back_owed();
        let due = self.due().cloned();
        match self.receiver.receive() {
            Ok(Some(message)) => {
                let (head, body) = (message.head.to_vec(), message.body.to_vec());
                let sent = self.take_due();
                assert!(!sent.is_withdrawn(), "message {} was withdrawn", sent.number);
                assert_eq!(head, sent.head(), "head of message {}", sent.number);
                assert!(body == sent.body(), "body of message {sent:?}");
                self.owed = Some(sent);
                true
            }
            Ok(None) => {
                // A large message that was withdrawn is found, and is none.
                if due.as_ref().is_some_and(Sent::is_withdrawn) {
                    self.take_due();
                    return true;
                }
                assert!(due.is_none(), "{due:?} is not there");
                false
            }
            Err(severed) => panic!("{severed}"),
        }
    }

    /// Takes a message, and returns whether there was one.
    fn take(&mut self) -> bool {
        self.give_back_owed();
        let due = self.due().cloned();
        let held = match self.receiver.take() {
            Ok(Some(Incoming::Message(message))) => {
                let (head, body) = (message.head.to_vec(), message.body.to_vec());
                let sent = self.take_due();
                assert_eq!(head, sent.head(), "head of message {}", sent.number);
                assert!(body == sent.body(), "body of message {sent:?}");
                self.owed = Some(sent);
                return true;
            }
            Ok(Some(Incoming::InPage(message))) => Held::InPage(message),
            Ok(Some(Incoming::Announced(message))) => Held::Announced(message),
            Ok(Some(Incoming::List(list))) => Held::List(list),
            Ok(None) => {
                assert!(due.is_none(), "{due:?} is not there");
                return false;
            }
            Err(severed) => panic!("{severed}"),
        };
        let sent = self.take_due();
        match &held {
            Held::InPage(message) => {
                assert_eq!(message.head_bytes(), sent.head);
                assert_eq!(message.body_bytes(), sent.bytes);
            }
            Held::Announced(message) => {
                assert_eq!((message.head(), message.body_bytes()), (sent.head(), sent.bytes));
            }
            Held::List(list) => {
                let Kind::List { entries, .. } = &sent.kind else { panic!("{sent:?} is no list") };
                let named: Vec<Entry> = entries.iter().map(|(entry, _)| *entry).collect();
                assert_eq!((list.note(), list.entries()), (sent.number as u8, &named[..]));
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
            Held::InPage(message) => {
                let mut whole = vec![0; sent.head + sent.bytes];
                message.view().read(0, &mut whole).unwrap();
                assert!(whole == [sent.head(), &sent.body()].concat(), "{sent:?}");
                assert!(message.view().read(1, &mut whole).is_err(), "no byte beyond it");
            }
            Held::Announced(message) => {
                let at = message.pulled_bytes();
                let mut piece = vec![0; bytes];
                match self.receiver.pull(message, &mut piece) {
                    Ok(pulled) => {
                        assert!(!sent.is_withdrawn());
                        assert_eq!(pulled, bytes.min(sent.bytes - at));
                        assert!(piece[..pulled] == body(sent.number, sent.bytes)[at..at + pulled]);
                    }
                    Err(error) => {
                        assert_eq!((error, true), (PullError::Withdrawn, sent.is_withdrawn()))
                    }
                }
            }
            Held::List(list) => {
                let Kind::List { entries, .. } = &sent.kind else { panic!("{sent:?} is no list") };
                for (index, entry) in entries.iter().enumerate() {
                    let view = self.receiver.view(list, index);
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
            Held::InPage(message) => self.receiver.give_back(message),
            Held::Announced(message) => self.receiver.release(message),
            Held::List(list) => self.receiver.give_back_list(list),
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
        }
    }

    fn receiver_sleeps(&mut self) {
        while self.receiver.hear(Listen::Now) > 0 {}
        self.receiver.announce_sleep();
        self.give_back_owed();
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
            assert!(self.sender.hear(Listen::Now) > 0, "there is room and nobody rang");
            self.wake_sender();
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
        for (lent, _) in std::mem::take(&mut self.lents) {
            self.sender.cancel(lent);
        }
        self.sender.flush();
        self.pushed = 0;
        while self.receive() {}
        while !self.shared.is_empty() {
            self.retire_shared(0);
            while self.receive() {}
        }
        assert_eq!((self.sent.len(), self.numbers), (0, self.received));
    }

    /// Sends a message and receives it, sleeping on either side as programs do.
    pub fn pass_one(&mut self, bytes: usize) {
        if bytes as u64 > self.terms.message_bytes_max() && bytes > PAGE_BYTES {
            return;
        }
        assert!(self.send(Way::Send, 0, bytes), "a path that is empty takes {bytes} bytes");
        assert!(self.receive());
        assert!(!self.receive());
    }

    /// Two periods without use, and no storage is lent.
    pub fn assert_nothing_is_lent(&mut self) {
        self.sender.tidy();
        while self.receive() {}
        assert!(!self.sender.tidy(), "nothing is left to keep");
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
                let other = pair(Terms::default());
                drop(std::mem::replace(sender, other.sender));
                self.drain(Severed { reason: Reason::Gone, data: [0; 16] });
            }
            End::ReceiverSevers(data) => {
                // What goes into a pack that is open goes without a look at the other side.
                self.sender.flush();
                self.receiver.sever(data);
                let severed = Severed { reason: Reason::Peer, data };
                assert_eq!(self.sender.send(b"x"), Err(SendError::Severed(severed)));
                let ours = Severed { reason: Reason::Ours, data };
                assert_eq!(self.receiver.receive(), Err(ours));
            }
            End::ReceiverDrops => {
                let other = pair(Terms::default());
                drop(std::mem::replace(&mut self.receiver, other.receiver));
                while self.sender.ended().is_none() {
                    self.sender.hear(Listen::Forever);
                }
                let severed = Severed { reason: Reason::Gone, data: [0; 16] };
                assert_eq!(self.sender.send(b"x"), Err(SendError::Severed(severed)));
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
                if self.sent.len().is_multiple_of(2) { self.take() } else { self.receive() };
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
