//! An honest side of a conversation, and a partner driven by a script.

use fabric::path::{Counter, HEAD_BYTES_MAX, Halves, NO_DATA};
use message::appc::{Conversation, Data, Level, Role, State, Then, TryError, Verb, VerbError};

use super::neighbour::Neighbour;
use super::script::Script;
use super::{DEEDS_MAX, DEEDS_PER_VISIT, TERMS, Watch};
use crate::honest::{Pair, body, pair};

/// The partner's part of the path, which is honest: it can send any head with any body.
struct Liar {
    halves: Option<Halves>,
}

/// A partner that says anything at any time: records that may come and records that may not, what was not
/// seen, bodies where there are none, and any end.
///
/// # Panics
/// If it does harm.
pub fn appc_peer(program: &[u8]) {
    let watch = Watch::start();
    {
        let mut script = Script::new(program);
        let mut neighbour = Neighbour::new();
        let Pair { sender, receiver, back: (mut own, mut other) } = pair(TERMS);
        own.senders.push(sender);
        other.receivers.push(receiver);
        let role = script.pick(&[Role::Allocator, Role::Acceptor]);
        let level = script.pick(&[Level::Confirm, Level::Confirm, Level::None]);
        let mut conversation = Conversation::new(own, role, level);
        let mut liar = Liar { halves: Some(other) };
        for deed in 0..DEEDS_MAX {
            if script.is_over() {
                break;
            }
            if script.below(2) == 0 {
                liar.act(&mut script);
            } else {
                verb(&mut conversation, &mut script);
            }
            if deed.is_multiple_of(DEEDS_PER_VISIT) {
                neighbour.visit();
            }
        }
        if conversation.state() != State::Reset {
            conversation.sever(NO_DATA).expect("there is a conversation");
        }
        assert_eq!(conversation.state(), State::Reset);
        assert_eq!((conversation.next_event(), conversation.has_event()), (None, false));
        neighbour.visit();
    }
    watch.stop();
}

impl Liar {
    fn act(&mut self, script: &mut Script<'_>) {
        let Some(Halves { senders, receivers }) = &mut self.halves else { return };
        let (sender, receiver) = (&mut senders[0], &mut receivers[0]);
        let bytes = script.pick(&[0, 0, 0, 8, 100, 5000, 70_000]);
        // What becomes of it is the other side's business.
        match script.below(32) {
            0..18 => {
                let head = head(script);
                let bytes = if head[0] == 1 || script.below(16) == 0 { bytes } else { 0 };
                let _ = sender.send(&head, body(1, bytes));
            }
            18 => {
                let head = script.bytes(HEAD_BYTES_MAX);
                let _ = sender.send(head, body(2, bytes));
            }
            19 => {
                let _ = sender.push(&head(script), body(3, bytes));
            }
            20..23 => {
                if let Ok(mut claim) = sender.claim(&head(script), 100_000) {
                    claim.truncate(script.pick(&[0, 8, 70_000, 100_000]));
                    if let Err((_, claim)) = sender.commit(claim) {
                        sender.cancel(claim).expect("claimed just now");
                    }
                }
            }
            23..28 => drop(receiver.receive().is_ok()),
            28 => receiver.quiesce(),
            29 => receiver.resume(),
            30 => sender.flush(),
            _ => match script.below(8) {
                0 => sender.sever([1; 16]),
                1 => receiver.sever([2; 16]),
                2 => self.halves = None,
                _ => {}
            },
        }
    }
}

/// A head that makes sense by itself, more often than not.
fn head(script: &mut Script<'_>) -> [u8; 6] {
    let code = script.pick(&[1, 1, 1, 2, 3, 4, 5, 6]);
    let note = match code {
        1 | 2 => script.below(7) as u8,
        4 => script.below(2) as u8,
        _ => 0,
    };
    let seen = match script.below(8) {
        0 => script.number() as u32,
        1 | 2 => script.below(4) as u32,
        _ => 0,
    };
    let [a, b, c, d] = seen.to_le_bytes();
    [code, note, a, b, c, d]
}

/// One verb, and what may come of it.
fn verb(conversation: &mut Conversation, script: &mut Script<'_>) {
    let before = conversation.state();
    let record = body(4, script.pick(&[0, 8, 100, 5000, 70_000, 3_000_000]));
    let then = script.pick(&Then::ALL);
    let (verb, done) = match script.below(16) {
        0..2 => (Verb::Send, conversation.send(record, then)),
        2 => (Verb::Send, conversation.push(record)),
        3 => {
            let verb = if then.confirms() { Verb::Confirm } else { Verb::Send };
            (verb, conversation.send_without_data(then))
        }
        4..9 => (Verb::Receive, receive(conversation, script)),
        9 => {
            let done = conversation.confirmation();
            assert!(before == State::Confirming || done == Ok(()));
            assert!(!matches!(done, Err(TryError::Verb(VerbError::State(_)))));
            return;
        }
        10 => (Verb::Confirmed, conversation.confirmed()),
        11 => (Verb::Error, conversation.error()),
        12 => (Verb::Request, conversation.request()),
        13 => {
            conversation.take_requested();
            conversation.next_event();
            return;
        }
        14 => {
            conversation.hear();
            conversation.is_ready();
            conversation.trim();
            return;
        }
        _ if script.below(32) == 0 => {
            (Verb::Sever, conversation.sever([3; 16]).map_err(TryError::from))
        }
        _ => return,
    };
    let after = conversation.state();
    match done {
        Err(TryError::Verb(VerbError::State(error))) => {
            assert_eq!((error.verb, error.state, after), (verb, before, before));
            assert!(!before.allows(verb));
        }
        Err(TryError::Verb(VerbError::Trouble(_))) => assert_eq!(after, State::Receive),
        Err(TryError::Verb(VerbError::Ended(_))) => assert_eq!(after, State::Sever),
        Err(_) => assert_eq!(after, before),
        Ok(()) => assert!(before.allows(verb)),
    }
    let lent = conversation.counters().get(Counter::LentBytes);
    assert!(lent <= TERMS.peer_storage_bytes_max, "{lent} bytes are borrowed");
}

fn receive(conversation: &mut Conversation, script: &mut Script<'_>) -> Result<(), TryError> {
    let mut target = vec![0; script.pick(&[0, 1, 100, 10_000, 200_000])];
    let received = conversation.receive(&mut target)?;
    assert!(received.bytes <= target.len());
    assert!(received.bytes == 0 || received.data != Data::None);
    let state = received.status;
    assert_eq!(conversation.state(), state);
    let asks_to_confirm =
        matches!(state, State::Confirm | State::ConfirmSend | State::ConfirmSever);
    assert!(!asks_to_confirm || conversation.level() == Level::Confirm);
    if let Data::Incomplete { left } = received.data {
        assert!(left > 0 && state == State::Receive);
    }
    Ok(())
}
