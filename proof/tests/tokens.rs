//! What a half gives out it takes back alone: with another half it is an error, and nothing is changed on
//! either.

use fabric::path::{
    Announced, Claim, CommitError, Counter, InPage, Incoming, List, NotOurs, PAGE_BYTES, Receiver,
    Sender, Shared, Terms,
};
use fabric::queue::{Entry, LATE_WORD, RETURNED_WORD};
use os::doorbell::Listen;
use os::storage::StorageOptions;
use os::sync::Ordering;
use proof::honest::{Pair, Shown, body, shown_pair};

const PAGE: usize = 5000;
const LARGE: usize = 100_000;

/// A path, and what it shows.
struct Watched {
    sender: Sender,
    receiver: Receiver,
    shown: Shown,
    _back: Box<dyn std::any::Any>,
}

impl Watched {
    fn new() -> Watched {
        let (Pair { sender, receiver, back }, shown) = shown_pair(Terms::DEFAULT);
        Watched { sender, receiver, shown, _back: Box::new(back) }
    }

    /// Sends one of each kind, and takes them: all of them are out.
    fn fill(&mut self) -> (InPage, Announced, List) {
        let shared = Shared::create(4096, StorageOptions::default()).unwrap();
        let segment = self.sender.lend_shared(&shared).unwrap();
        let entry = Entry { segment, length: 100, ..Entry::default() };
        self.sender.send(&[], body(1, PAGE)).unwrap();
        self.sender.send(&[], body(2, LARGE)).unwrap();
        self.sender.send_list(7, &[entry], Some(3)).unwrap();
        self.sender.send(&[], b"behind them").unwrap();
        let Ok(Some(Incoming::InPage(in_page))) = self.receiver.poll(0) else {
            panic!("in a page")
        };
        let Ok(Some(Incoming::Announced(large))) = self.receiver.poll(0) else { panic!("large") };
        let Ok(Some(Incoming::List(list))) = self.receiver.poll(0) else { panic!("a list") };
        assert!(self.receiver.receive().unwrap().is_some());
        assert_eq!(self.receiver.receive(), Ok(None));
        (in_page, large, list)
    }

    /// All that can be seen of it.
    fn state(&mut self) -> Vec<u64> {
        let Watched { sender, receiver, shown, .. } = self;
        // Whoever looks takes back what has come back, and shows how much is in use then.
        let ready = u64::from(sender.is_ready()) + 2 * u64::from(receiver.is_ready());
        let load = |word| shown.reader.returns.load(word, Ordering::Acquire);
        let mut state = vec![load(RETURNED_WORD), load(LATE_WORD)];
        state.push(shown.reader.released.load(0, Ordering::Acquire));
        let kept = &shown.reader.kept;
        state.extend((0..kept.count()).map(|at| kept.load(at, Ordering::Acquire)));
        state.extend(Counter::ALL.map(|counter| sender.counters().get(counter)));
        state.extend(Counter::ALL.map(|counter| receiver.counters().get(counter)));
        state.push(ready);
        assert_eq!((sender.ended(), receiver.ended()), (None, None));
        state
    }

    /// The path goes on as if nothing had happened.
    fn goes_on(&mut self) {
        for bytes in [0, 100, PAGE, LARGE] {
            self.sender.send(&[], body(9, bytes)).unwrap();
            assert!(self.receiver.receive().unwrap().expect("sent").body == body(9, bytes));
        }
        while self.receiver.hear(Listen::Now) > 0 {}
    }
}

#[test]
fn receiver_takes_back_only_what_it_has_given_out() {
    let (mut one, mut other) = (Watched::new(), Watched::new());
    let (in_page, mut large, list) = one.fill();
    let (other_page, other_large, other_list) = other.fill();
    let before = (one.state(), other.state());

    let NotOurs(in_page) = other.receiver.give_back(in_page).unwrap_err();
    let NotOurs(list) = other.receiver.give_back_list(list).unwrap_err();
    assert!(other.receiver.pull(&mut large, &mut [0; 100]).is_err());
    assert_eq!(large.pulled_bytes(), 0);
    assert!(other.receiver.is_pullable(&large), "nobody waits for what never comes");
    let NotOurs(mut large) = other.receiver.release(large).unwrap_err();
    assert_eq!((one.state(), other.state()), before, "nothing was changed on either");

    // Each with its own, where all of it is still there.
    let mut bytes = vec![0; PAGE];
    in_page.read(0, &mut bytes).unwrap();
    assert!(bytes == body(1, PAGE));
    let mut bytes = vec![0; LARGE];
    assert_eq!(one.receiver.pull(&mut large, &mut bytes), Ok(LARGE));
    assert!(bytes == body(2, LARGE));
    for (path, in_page, large, list) in
        [(&mut one, in_page, large, list), (&mut other, other_page, other_large, other_list)]
    {
        assert_eq!(path.sender.completed(), None);
        path.receiver.give_back(in_page).unwrap();
        path.receiver.release(large).unwrap();
        path.receiver.give_back_list(list).unwrap();
        assert_eq!(path.sender.completed(), Some(3));
        path.goes_on();
    }
}

#[test]
fn sender_takes_back_only_what_it_has_given_out() {
    let (mut one, mut other) = (Watched::new(), Watched::new());
    for bytes in [10, PAGE, PAGE_BYTES, LARGE] {
        let claimed = |path: &mut Watched| {
            let mut claim = path.sender.claim(b"head", bytes).unwrap();
            path.sender.claimed(&mut claim).unwrap().copy_from_slice(body(3, bytes));
            while path.receiver.poll_short().unwrap().is_some() {}
            assert_eq!(path.receiver.receive(), Ok(None));
            claim
        };
        let (claim, other_claim) = (claimed(&mut one), claimed(&mut other));
        let before = (one.state(), other.state());
        let claim = not_taken(&mut other.sender, claim);
        let other_claim = not_taken(&mut one.sender, other_claim);
        assert_eq!((one.state(), other.state()), before, "nothing was changed on either");
        assert_eq!((one.receiver.receive(), other.receiver.receive()), (Ok(None), Ok(None)));

        one.sender.commit(claim).unwrap();
        let message = one.receiver.receive().unwrap().expect("sent");
        assert!(message.head == b"head" && message.body == body(3, bytes));
        other.sender.cancel(other_claim).unwrap();
        one.goes_on();
        other.goes_on();
    }
}

/// Another half does nothing with a claim.
fn not_taken(sender: &mut Sender, mut claim: Claim) -> Claim {
    assert!(sender.claimed(&mut claim).is_none());
    let (error, claim) = sender.commit(claim).unwrap_err();
    assert_eq!(error, CommitError::NotOurs);
    let NotOurs(claim) = sender.cancel(claim).unwrap_err();
    claim
}

#[test]
fn what_outlives_its_half_is_nobodys() {
    let (mut one, mut other) = (Watched::new(), Watched::new());
    let (in_page, large, list) = one.fill();
    let claim = one.sender.claim(&[], PAGE).unwrap();
    drop(one);
    let before = other.state();
    // It can be read: its storage lives as long as it.
    let mut bytes = vec![0; PAGE];
    in_page.read(0, &mut bytes).unwrap();
    assert!(bytes == body(1, PAGE));
    assert!(other.receiver.give_back(in_page).is_err());
    assert!(other.receiver.release(large).is_err());
    assert!(other.receiver.give_back_list(list).is_err());
    drop(not_taken(&mut other.sender, claim));
    assert_eq!(other.state(), before);
    other.goes_on();
}
