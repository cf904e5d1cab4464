use super::*;
use crate::appc::outcome::VerbError;
use crate::appc::outcome::{Data, Event, Received};
use crate::appc::record::{HEAD_BYTES, Record, Word};
use crate::tests::joined;
use fabric::path::{Counter, PAGE_BYTES, Reason, Shape, Shared, Terms};
use fabric::queue::{Entry, IN_PLACE_BYTES_MAX, Violation};
use os::storage::StorageOptions;

const TERMS: Terms = Terms {
    storage_bytes_max: 4 << 30,
    peer_storage_bytes_max: 4 << 30,
    announced_bytes_max: 4 << 30,
    ..Terms::DEFAULT
};

/// Both sides of a conversation.
fn pair(level: Level) -> (Conversation, Conversation) {
    let (one, other) = joined(Shape::SIMPLE, TERMS);
    let allocator = Conversation::new(one, Role::Allocator, level);
    (allocator, Conversation::new(other, Role::Acceptor, level))
}

/// A side, and the halves of a partner that says what it likes.
fn facing(role: Role, level: Level) -> (Conversation, Halves) {
    let (one, other) = joined(Shape::SIMPLE, TERMS);
    (Conversation::new(one, role, level), other)
}

fn speak(partner: &mut Halves, word: Word, seen: u32, body: &[u8]) {
    partner.senders[0].send(&Record { word, seen }.bytes(), body).unwrap();
}

/// What the partner hears next.
fn hear(partner: &mut Halves) -> Option<(Word, u32)> {
    let message = partner.receivers[0].receive().unwrap()?;
    let record = Record::parse(message.head).unwrap();
    Some((record.word, record.seen))
}

fn complete(bytes: usize, status: State) -> Result<Received, TryError> {
    Ok(Received { bytes, data: Data::Complete, status, requested: false })
}

fn no_data(status: State) -> Result<Received, TryError> {
    Ok(Received { bytes: 0, data: Data::None, status, requested: false })
}

const PURGING: TryError = TryError::Verb(VerbError::Trouble(Trouble::Purging));
const NO_TRUNCATION: TryError = TryError::Verb(VerbError::Trouble(Trouble::NoTruncation));
const NORMAL: TryError = TryError::Verb(VerbError::Ended(Ended::Normal));

fn broken(violation: Violation) -> TryError {
    let reason = Reason::Violation(violation);
    VerbError::Ended(Ended::Failed(fabric::path::Severed { reason, data: [0; 16] })).into()
}

#[test]
fn exchange_turns_round_with_its_record() {
    let (mut one, mut other) = pair(Level::None);
    let mut buffer = vec![0; 1_000_000];
    let (in_place, page) = (IN_PLACE_BYTES_MAX - HEAD_BYTES, PAGE_BYTES - HEAD_BYTES);
    let lengths = [0, 1, 50, 51, in_place, in_place + 1, 5000, page, PAGE_BYTES, 1_000_000];
    for length in lengths {
        one.send(&[1; 8], Then::Receive).unwrap();
        assert_eq!(other.receive(&mut buffer), complete(8, State::Send));
        other.send(&vec![2; length], Then::Receive).unwrap();
        assert_eq!(one.receive(&mut buffer), complete(length, State::Send));
        assert_eq!(buffer[..length], vec![2; length]);
        assert_eq!(other.receive(&mut buffer), Err(TryError::Pending));
    }
    // One message each way, nothing besides.
    let each = lengths.len() as u64;
    assert_eq!(
        (
            one.sender.counters().get(Counter::Messages),
            other.sender.counters().get(Counter::Messages)
        ),
        (each, each)
    );
}

#[test]
fn record_is_received_in_the_parts_that_fit() {
    let (mut one, mut other) = pair(Level::None);
    for length in [10, 5000, 200_000] {
        let record: Vec<u8> = (0..length).map(|at| (at * 7) as u8).collect();
        one.send(&record, Then::More).unwrap();
        let mut part = vec![0; length / 2 - 1];
        for from in [0, part.len()] {
            let left = length - from - part.len();
            let received = other.receive(&mut part).unwrap();
            assert_eq!(received.data, Data::Incomplete { left });
            assert_eq!((received.bytes, received.status), (part.len(), State::Receive));
            assert_eq!(part, record[from..from + part.len()]);
        }
        assert_eq!(other.pending_bytes(), Ok(2));
        assert_eq!(other.receive(&mut part), complete(2, State::Receive));
        assert_eq!(part[..2], record[length - 2..]);
    }
}

#[test]
fn confirmation_comes_before_what_comes_next() {
    let (mut one, mut other) = pair(Level::Confirm);
    let mut none = [];
    one.send_without_data(Then::Confirm).unwrap();
    assert_eq!(one.confirmation(), Err(TryError::Pending));
    assert_eq!(other.receive(&mut none), no_data(State::Confirm));
    other.confirmed().unwrap();
    assert_eq!(
        (one.confirmation(), one.state(), other.state()),
        (Ok(()), State::Send, State::Receive)
    );
    one.send(&[], Then::ConfirmReceive).unwrap();
    assert_eq!(other.receive(&mut none), complete(0, State::ConfirmSend));
    other.confirmed().unwrap();
    assert_eq!(
        (one.confirmation(), one.state(), other.state()),
        (Ok(()), State::Receive, State::Send)
    );
    other.send_without_data(Then::ConfirmSever).unwrap();
    assert_eq!(one.receive(&mut none), no_data(State::ConfirmSever));
    one.confirmed().unwrap();
    assert_eq!(
        (other.confirmation(), one.state(), other.state()),
        (Ok(()), State::Reset, State::Reset)
    );
}

#[test]
fn conversation_without_confirmation_has_none() {
    let (mut one, _other) = pair(Level::None);
    for then in Then::ALL.into_iter().filter(|then| then.confirms()) {
        assert_eq!(one.send(b"x", then), Err(VerbError::NoConfirmation.into()));
        assert_eq!(one.send_without_data(then), Err(VerbError::NoConfirmation.into()));
        assert_eq!((one.state(), one.sender.counters().get(Counter::Messages)), (State::Send, 0));
    }
}

/// A conversation in a state that it can be in once it is there, and its partner.
fn in_state(state: State) -> (Conversation, Conversation) {
    let (mut one, mut other) = pair(Level::Confirm);
    let mut none = [];
    match state {
        State::Send => {}
        State::Receive => {
            one.send_without_data(Then::Receive).unwrap();
            other.receive(&mut none).unwrap();
        }
        State::Confirming => one.send_without_data(Then::Confirm).unwrap(),
        State::Confirm | State::ConfirmSend | State::ConfirmSever => {
            let then = match state {
                State::Confirm => Then::Confirm,
                State::ConfirmSend => Then::ConfirmReceive,
                _ => Then::ConfirmSever,
            };
            other.error().unwrap();
            assert_eq!(
                one.receive(&mut none),
                Err(StateError { verb: Verb::Receive, state: State::Send }.into())
            );
            assert_eq!(one.send(b"", Then::More), Err(PURGING));
            other.send_without_data(then).unwrap();
            one.receive(&mut none).unwrap();
        }
        State::Sever => {
            other.sever([3; 16]).unwrap();
            let ended = Ended::Abend([3; 16]);
            assert_eq!(one.send(b"", Then::More), Err(ended.into()));
        }
        State::Reset => one.sever([0; 16]).unwrap(),
        State::Connect => unreachable!("there is no path yet"),
    }
    assert_eq!(one.state(), state);
    (one, other)
}

#[test]
fn every_verb_is_done_or_refused_as_the_state_has_it() {
    let states = State::ALL.into_iter().filter(|state| *state != State::Connect);
    for state in states {
        for verb in Verb::ALL {
            let (mut one, mut other) = in_state(state);
            let before = one.sender.counters().get(Counter::Messages);
            let done = match verb {
                Verb::Allocate | Verb::Accept => continue,
                Verb::Send => one.send(b"data", Then::More),
                Verb::Receive => one.receive(&mut []).map(drop),
                Verb::Confirm => one.send_without_data(Then::Confirm),
                Verb::Confirmed => one.confirmed(),
                Verb::Error => one.error(),
                Verb::Request => one.request(),
                Verb::Sever => one.sever([0; 16]).map_err(TryError::from),
            };
            if !state.allows(verb) {
                assert_eq!(done, Err(StateError { verb, state }.into()));
                assert_eq!(
                    (one.state(), one.sender.counters().get(Counter::Messages)),
                    (state, before),
                    "{verb}"
                );
                continue;
            }
            let after = match (verb, state) {
                (Verb::Send, _) => State::Send,
                (Verb::Receive | Verb::Request, _) => state,
                (Verb::Confirm, _) => State::Confirming,
                (Verb::Confirmed, State::ConfirmSend) => State::Send,
                (Verb::Confirmed, State::ConfirmSever) => State::Reset,
                (Verb::Confirmed, _) => State::Receive,
                (Verb::Error, _) => State::Send,
                _ => State::Reset,
            };
            let expected = if verb == Verb::Receive { Err(TryError::Pending) } else { Ok(()) };
            assert_eq!((done, one.state()), (expected, after), "{verb} in {state}");
            // The partner takes whatever it is for what it may be.
            other.next_event();
            assert!(!matches!(other.ended, Some(Ended::Failed(_))), "{verb} in {state}");
        }
    }
}

#[test]
fn error_of_a_receiver_purges_what_it_has_not_received() {
    let (mut one, mut other) = pair(Level::Confirm);
    let mut part = [0; 100];
    for bytes in [0, 10, 5000, 1 << 30] {
        one.send_built(bytes, Then::More, |_| {}).unwrap();
        one.send(b"purged too", Then::Receive).unwrap();
        if bytes > 0 {
            other.receive(&mut part[..5]).unwrap();
        }
        other.error().unwrap();
        assert_eq!(other.state(), State::Send);
        assert_eq!(one.receive(&mut part), Err(PURGING));
        assert_eq!(one.receive(&mut part), Err(TryError::Pending));
        other.send(b"what is this?", Then::Receive).unwrap();
        assert_eq!(one.receive(&mut part), complete(13, State::Send));
        assert_eq!(other.receive(&mut part), Err(TryError::Pending));
    }
    // Whoever still sends when the error comes has not sent.
    one.send(b"x", Then::More).unwrap();
    other.error().unwrap();
    assert_eq!(one.send(b"y", Then::More), Err(PURGING));
    assert_eq!(one.state(), State::Receive);
    // And whoever waits to be confirmed is not.
    other.send_without_data(Then::Confirm).unwrap();
    assert_eq!(one.receive(&mut part), no_data(State::Confirm));
    one.error().unwrap();
    assert_eq!((other.confirmation(), other.state()), (Err(PURGING), State::Receive));
}

#[test]
fn error_of_a_sender_purges_nothing() {
    let (mut one, mut other) = pair(Level::None);
    let mut buffer = [0; 10];
    one.push(b"kept").unwrap();
    one.error().unwrap();
    one.send(b"as well", Then::More).unwrap();
    assert_eq!(other.receive(&mut buffer), complete(4, State::Receive));
    assert_eq!(other.receive(&mut buffer), Err(NO_TRUNCATION));
    assert_eq!(other.receive(&mut buffer), complete(7, State::Receive));
    assert_eq!((one.state(), other.state()), (State::Send, State::Receive));
}

#[test]
fn request_is_told_once_whatever_the_sender_does() {
    let (mut one, mut other) = pair(Level::None);
    for _ in 0..2 {
        one.send(&[1; 200_000], Then::More).unwrap();
        other.request().unwrap();
        other.request().unwrap();
        assert_eq!(one.next_event(), Some(Event::Request));
        assert_eq!(one.next_event(), None);
        assert!(one.take_requested() && !one.take_requested());
    }
    other.request().unwrap();
    one.send(b"", Then::Receive).unwrap();
    let mut buffer = vec![0; 200_000];
    for status in [State::Receive, State::Receive, State::Send] {
        assert_eq!(other.receive(&mut buffer).unwrap().status, status);
    }
    other.send(b"at last", Then::More).unwrap();
    let received = one.receive(&mut buffer).unwrap();
    assert!(received.requested);
}

#[test]
fn end_is_told_behind_what_was_sent() {
    let (mut one, mut other) = pair(Level::None);
    let mut buffer = [0; 100];
    one.send(b"last", Then::Sever).unwrap();
    assert_eq!(one.state(), State::Reset);
    assert_eq!(other.next_event(), Some(Event::MessagePending));
    assert_eq!(other.receive(&mut buffer), complete(4, State::Sever));
    assert_eq!((other.state(), other.next_event()), (State::Sever, None));

    let (mut one, mut other) = pair(Level::None);
    one.send(b"last", Then::More).unwrap();
    one.sever([7; 16]).unwrap();
    assert_eq!(other.request(), Ok(()), "there is something to receive first");
    assert_eq!(other.receive(&mut buffer), complete(4, State::Receive));
    assert_eq!(other.next_event(), Some(Event::Severed(Ended::Abend([7; 16]))));
    assert_eq!(other.next_event(), None);
    assert_eq!(other.receive(&mut buffer), Err(Ended::Abend([7; 16]).into()));
    assert_eq!(other.state(), State::Sever);

    let (mut one, other) = pair(Level::None);
    drop(other);
    one.hear();
    let Err(TryError::Verb(VerbError::Ended(Ended::Failed(severed)))) = one.send(b"x", Then::More)
    else {
        panic!("the partner is gone")
    };
    assert_eq!((severed.reason, one.state()), (Reason::Gone, State::Sever));
}

#[test]
fn error_after_the_end_is_too_late() {
    for bytes in [4, 100_000] {
        let (mut one, mut other) = pair(Level::None);
        one.send(&vec![1; bytes], Then::Sever).unwrap();
        assert_eq!(other.receive(&mut [0]).unwrap().bytes, 1);
        assert_eq!((other.error(), other.state()), (Err(NORMAL), State::Sever));
        let (mut one, mut other) = pair(Level::None);
        one.send(&vec![1; bytes], Then::More).unwrap();
        one.sever([1; 16]).unwrap();
        assert_eq!(other.error(), Err(Ended::Abend([1; 16]).into()));
    }
}

/// Both find an error before they hear of the other's: the allocator has it.
#[test]
fn of_errors_that_cross_the_allocators_counts() {
    let mut buffer = [0; 100];
    let (mut one, mut partner) = facing(Role::Allocator, Level::None);
    one.send_without_data(Then::Receive).unwrap();
    one.error().unwrap();
    assert_eq!(hear(&mut partner), Some((Word::NoData(Then::Receive), 0)));
    assert_eq!(hear(&mut partner), Some((Word::Error { purges: true }, 0)));
    speak(&mut partner, Word::Error { purges: true }, 0, &[]);
    speak(&mut partner, Word::Data(Then::Receive), 0, b"lost");
    one.send(b"mine", Then::Receive).unwrap();
    assert_eq!(hear(&mut partner), Some((Word::Data(Then::Receive), 0)), "its error is not seen");
    speak(&mut partner, Word::Data(Then::More), 1, b"found");
    assert_eq!(one.receive(&mut buffer), complete(5, State::Receive));

    let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
    speak(&mut partner, Word::Data(Then::More), 0, b"purged");
    one.error().unwrap();
    one.send(b"void", Then::Receive).unwrap();
    speak(&mut partner, Word::Data(Then::Receive), 0, b"purged");
    speak(&mut partner, Word::Error { purges: true }, 0, &[]);
    speak(&mut partner, Word::Data(Then::Receive), 0, b"counts");
    assert_eq!(one.receive(&mut buffer), Err(PURGING));
    assert_eq!(one.receive(&mut buffer), complete(6, State::Send));
    one.send(b"heard", Then::More).unwrap();
    let heard: Vec<_> = std::iter::from_fn(|| hear(&mut partner)).collect();
    assert_eq!(heard.last(), Some(&(Word::Data(Then::More), 1)));
}

#[test]
fn request_and_end_are_never_stale() {
    let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
    one.error().unwrap();
    speak(&mut partner, Word::Request, 0, &[]);
    speak(&mut partner, Word::Confirmed, 0, &[]);
    assert!(one.take_requested());
    speak(&mut partner, Word::Data(Then::Sever), 0, b"purged");
    assert_eq!(one.send(b"x", Then::More), Err(NORMAL));
}

#[test]
fn what_the_state_does_not_let_come_ends_the_conversation() {
    use Word::{Confirmed, Data, Error, NoData, Request};
    let more = Data(Then::More);
    let purging = Error { purges: true };
    let kept = Error { purges: false };
    let to_sender = [more, NoData(Then::Receive), Data(Then::Sever), Confirmed, kept];
    let to_receiver =
        [Confirmed, purging, Request, Data(Then::Confirm), NoData(Then::ConfirmSever)];
    for (role, words) in [(Role::Allocator, to_sender), (Role::Acceptor, to_receiver)] {
        for word in words {
            let (mut one, mut partner) = facing(role, Level::None);
            speak(&mut partner, word, 0, &[]);
            let done = match role {
                Role::Allocator => one.send(b"x", Then::More),
                Role::Acceptor => one.receive(&mut []).map(drop),
            };
            assert_eq!(done, Err(broken(Violation::State)), "{word:?}");
            assert_eq!(one.state(), State::Sever);
        }
    }
    // Who has turned round may still find the partner receiving, but only once.
    let (mut one, mut partner) = facing(Role::Allocator, Level::None);
    one.send_without_data(Then::Receive).unwrap();
    for word in [Request, purging] {
        speak(&mut partner, word, 0, &[]);
    }
    assert_eq!(one.receive(&mut []), Err(PURGING));
    speak(&mut partner, purging, 0, &[]);
    assert_eq!(one.receive(&mut []), Err(broken(Violation::State)));
    // Who asks for confirmation waits for it.
    let (mut one, mut partner) = facing(Role::Acceptor, Level::Confirm);
    speak(&mut partner, Data(Then::Confirm), 0, &[]);
    one.receive(&mut []).unwrap();
    speak(&mut partner, more, 0, &[]);
    assert_eq!(one.confirmed(), Err(broken(Violation::State)));
}

#[test]
fn what_makes_no_sense_ends_the_conversation() {
    let error = Word::Error { purges: true };
    for (word, seen, body, violation) in [
        (Word::Data(Then::More), 1, &b"seen what was not said"[..], Violation::Record),
        (Word::NoData(Then::Receive), 0, b"a body", Violation::Size),
        (Word::Confirmed, 0, b"a body", Violation::Size),
        (Word::Request, u32::MAX, b"", Violation::Record),
    ] {
        let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
        speak(&mut partner, word, seen, body);
        assert_eq!(one.receive(&mut []), Err(broken(violation)), "{word:?}");
    }
    // What was seen is not unseen.
    let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
    one.error().unwrap();
    speak(&mut partner, Word::Request, 1, &[]);
    speak(&mut partner, error, 0, &[]);
    assert_eq!(one.send(b"x", Then::More), Err(broken(Violation::Record)));
    for head in [&[][..], &[1, 0, 0, 0, 0], &[9; 6], &[1, 9, 0, 0, 0, 0], &[0; 24]] {
        let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
        partner.senders[0].send(head, &[1; 100_000]).unwrap();
        assert_eq!(one.receive(&mut []), Err(broken(Violation::Record)), "{head:?}");
    }
    // A list is no record.
    let (mut one, mut partner) = facing(Role::Acceptor, Level::None);
    let shared = Shared::create(4096, StorageOptions::default()).unwrap();
    let segment = partner.senders[0].lend_shared(&shared).unwrap();
    let entry = Entry { segment, length: 6, ..Entry::default() };
    partner.senders[0].send_list(0, &[entry], None).unwrap();
    assert_eq!(one.receive(&mut [0; 10]), Err(broken(Violation::Record)));
}

#[test]
fn error_that_was_taken_in_with_something_else_is_for_the_verb_that_waits_for_room() {
    let (mut one, mut other) = pair(Level::None);
    while one.send(b"until it is full", Then::More).is_ok() {}
    assert!(!one.has_come());
    other.error().unwrap();
    assert!(one.has_come());
    // Somebody polls for a request, and finds the error.
    assert!(!one.next_request() && one.has_come());
    assert_eq!(one.send(b"", Then::More), Err(PURGING));
    assert!(!one.has_come());
}

#[test]
fn end_that_was_taken_in_with_something_else_is_for_the_verb_that_waits_for_room() {
    let (mut one, mut other) = pair(Level::None);
    while one.send(b"until it is full", Then::More).is_ok() {}
    other.sever([3; 16]).unwrap();
    assert!(!one.next_request() && one.has_come());
    assert_eq!(one.send(b"", Then::More), Err(Ended::Abend([3; 16]).into()));
}
