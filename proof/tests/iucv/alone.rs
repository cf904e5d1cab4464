//! What deserves a test of its own: what random programs have found, and what they hardly ever do.

use fabric::iucv::{Limits, Outgoing, Path, ReceiveError, Which};
use fabric::path::Terms;
use proof::honest::iucv;

const LIMITS: Limits =
    Limits { ours: 100, theirs: 100, parameters_for_us: true, parameters_for_them: true };

const PLAIN: Outgoing = Outgoing {
    target_class: 1,
    source_class: 2,
    tag: 3,
    priority: false,
    answer: None,
    quiet: false,
};
const URGENT: Outgoing = Outgoing { priority: true, ..PLAIN };
const TWO_WAY: Outgoing = Outgoing { answer: Some(100), ..PLAIN };

fn receive(path: &mut Path, which: Which) -> Result<Vec<u8>, ReceiveError> {
    let mut buffer = [0; 5000];
    let received = path.receive(which, &mut buffer)?;
    assert_eq!(received.residual, 0);
    Ok(buffer[..received.bytes].to_vec())
}

#[test]
fn priority_overtakes_though_a_reply_stands_before_it() {
    let [mut one, mut other] = iucv(Terms::default(), LIMITS);
    let asked = one.send(&TWO_WAY, b"question").unwrap();
    receive(&mut other, Which::Any).unwrap();
    other.reply(asked, false, b"answer").unwrap();
    other.send(&PLAIN, b"plain").unwrap();
    other.send(&URGENT, b"urgent").unwrap();
    assert_eq!(receive(&mut one, Which::Any).unwrap(), b"urgent");
    assert_eq!(receive(&mut one, Which::Any).unwrap(), b"plain");
}

#[test]
fn path_that_has_ended_has_nothing_more_to_say() {
    let [mut one, mut other] = iucv(Terms::default(), LIMITS);
    one.send(&PLAIN, b"last words").unwrap();
    one.sever([7; 16]);
    assert_eq!(receive(&mut other, Which::Any).unwrap(), b"last words");
    assert!(matches!(receive(&mut other, Which::Any), Err(ReceiveError::Severed(_))));
    other.flush();
    assert!(!other.has_more_to_say(), "nobody hears that it was received");
}

/// A pack is in memory of our own: its messages take another way than those in buffers of their own.
#[test]
fn message_of_which_nothing_was_received_is_still_the_next() {
    let [mut one, mut other] = iucv(Terms::default(), LIMITS);
    for number in 0..10_u8 {
        one.push(&PLAIN, &[number; 9]).unwrap();
    }
    one.flush();
    for number in 0..10_u8 {
        let received = other.receive(Which::Any, &mut []).unwrap();
        assert_eq!((received.bytes, received.residual), (0, 9));
        assert_eq!(receive(&mut other, Which::Any).unwrap(), [number; 9]);
    }
}

#[test]
fn what_stands_in_front_outlives_housekeeping() {
    let [mut one, mut other] = iucv(Terms::default(), LIMITS);
    let asked = one.send(&TWO_WAY, &[1; 100]).unwrap();
    one.send(&URGENT, &[2; 100]).unwrap();
    other.poll();
    assert!(other.describe(Which::Message { id: asked, class: 1 }).is_ok());
    other.tidy();
    assert_eq!(receive(&mut other, Which::Any).unwrap(), [2; 100]);
    assert_eq!(receive(&mut other, Which::Any).unwrap(), [1; 100]);
    other.reply(asked, false, &[3; 100]).unwrap();
    one.poll();
    one.tidy();
    let mut buffer = [0; 100];
    let which = Which::Message { id: asked, class: 2 };
    let (_, bytes, residual) = one.complete(which, &mut buffer).unwrap().unwrap();
    assert_eq!((bytes, residual, buffer), (100, 0, [3; 100]));
}
