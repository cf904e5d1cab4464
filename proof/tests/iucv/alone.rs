//! What deserves a test of its own: what random programs have found, and what they hardly ever do.

use fabric::path::{NO_DATA, Receiver, Terms};
use message::iucv::{
    BUFFERED_BYTES_MAX, Limits, Outgoing, Path, ReceiveError, SendError, TrySendError, Which,
};
use os::doorbell::Listen;
use proof::honest::iucv;

const LIMITS: Limits =
    Limits { ours: 100, theirs: 100, parameters_for_us: true, parameters_for_them: true };

const PLAIN: Outgoing = Outgoing {
    target_class: 1,
    source_class: 2,
    tag: 3,
    priority: false,
    reply_bytes_max: None,
    quiet: false,
};
const URGENT: Outgoing = Outgoing { priority: true, ..PLAIN };
const TWO_WAY: Outgoing = Outgoing { reply_bytes_max: Some(100), ..PLAIN };

fn receive(path: &mut Path, which: Which) -> Result<Vec<u8>, ReceiveError> {
    let mut buffer = [0; 5000];
    let received = loop {
        match path.receive(which, &mut buffer) {
            Err(ReceiveError::NotFound) if path.is_ready() => {}
            received => break received?,
        }
    };
    assert_eq!(received.residual, 0);
    Ok(buffer[..received.bytes].to_vec())
}

#[test]
fn priority_overtakes_though_a_reply_stands_before_it() {
    let [mut one, mut other] = iucv(Terms::DEFAULT, LIMITS);
    let asked = one.send(&TWO_WAY, b"question").unwrap();
    receive(&mut other, Which::Any).unwrap();
    other.reply(asked, false, b"answer").unwrap();
    other.send(&PLAIN, b"plain").unwrap();
    other.send(&URGENT, b"urgent").unwrap();
    assert_eq!(receive(&mut one, Which::Any).unwrap(), b"urgent");
    assert_eq!(receive(&mut one, Which::Any).unwrap(), b"plain");
}

#[test]
fn one_doorbell_tells_of_both_queues_until_the_last_is_over() {
    let [mut one, mut other] = iucv(Terms::DEFAULT, LIMITS);
    for outgoing in [PLAIN, URGENT] {
        other.announce_sleep([true, true]);
        one.send(&outgoing, b"here").unwrap();
        assert!(other.hear_arrivals(Listen::Forever));
        other.halves().1.iter_mut().for_each(Receiver::wake);
        receive(&mut other, Which::Any).unwrap();
    }
    let (senders, _) = one.halves();
    senders[0].sever(NO_DATA);
    assert!(other.hear_arrivals(Listen::Forever), "the end of a queue is rung for");
    assert_eq!(other.can_be_rung(), [true, true]);
    other.announce_sleep([false, true]);
    senders[1].send(&[], b"more").unwrap();
    assert!(other.hear_arrivals(Listen::Forever));
    senders[1].sever(NO_DATA);
    // Hung up, once what was rung before is heard.
    while other.hear_arrivals(Listen::Forever) {}
    assert_eq!(other.can_be_rung(), [false, true]);
    assert!(other.halves().1.iter().all(|receiver| receiver.ended().is_some()));
    one.halves().1.iter_mut().for_each(|receiver| receiver.sever(NO_DATA));
    while other.hear_returns() {}
    assert_eq!(other.can_be_rung(), [false, false]);
}

#[test]
fn message_is_purged_though_too_much_is_buffered_in_front_of_it() {
    const BYTES: usize = 60_000;
    let limits = Limits { ours: 5000, theirs: 5000, ..LIMITS };
    let [mut one, mut other] = iucv(Terms::DEFAULT, limits);
    let mut sent = Vec::new();
    let last = loop {
        match one.send(&PLAIN, &[1; BYTES]) {
            Ok(id) => sent.push(id),
            Err(TrySendError::Full) => {
                let before = other.counts().pending;
                assert_eq!(receive(&mut other, Which::Class(9)), Err(ReceiveError::NotFound));
                if other.counts().pending == before {
                    break sent.pop().expect("many were sent");
                }
            }
            Err(error) => panic!("{error}"),
        }
    };
    assert!(other.counts().pending >= BUFFERED_BYTES_MAX / BYTES && !sent.is_empty());
    one.purge(last, PLAIN.source_class).unwrap();
    let mut buffer = [0; BYTES];
    for id in &sent {
        let received = other.receive(Which::Any, &mut buffer).unwrap();
        assert_eq!((received.message.id, received.bytes), (*id, BYTES));
    }
    assert_eq!(receive(&mut other, Which::Any), Err(ReceiveError::NotFound));
    other.flush();
    one.poll();
    assert_eq!((one.counts().sent, one.counts().complete), (0, sent.len()));
}

#[test]
fn reply_is_heard_though_too_much_is_kept() {
    const BYTES: usize = 60_000;
    let [mut one, mut other] = iucv(Terms::DEFAULT, Limits { ours: 5000, theirs: 5000, ..LIMITS });
    while let Ok(_) | Err(TrySendError::Full) = one.send(&PLAIN, &[1; BYTES]) {
        let before = other.counts().pending;
        assert_eq!(receive(&mut other, Which::Class(9)), Err(ReceiveError::NotFound));
        if before * BYTES >= BUFFERED_BYTES_MAX {
            break;
        }
    }
    one.send(&URGENT, b"urgent").unwrap();
    other.poll();
    let asked = other.send(&TWO_WAY, b"question").unwrap();
    receive(&mut one, Which::Message { id: asked, class: 1 }).unwrap();
    one.reply(asked, false, b"answer").unwrap();
    let mut answer = [0; 10];
    let (completion, ..) = other.complete(Which::Any, &mut answer).unwrap().expect("replied to");
    assert_eq!((completion.id, &answer[..6]), (asked, &b"answer"[..]));
    one.send(&URGENT, b"urgent").unwrap();
    other.poll();
    one.sever(NO_DATA);
    other.poll();
    assert!(other.severed().is_some(), "so is the end");
}

#[test]
fn path_that_has_ended_has_nothing_more_to_say() {
    let [mut one, mut other] = iucv(Terms::DEFAULT, LIMITS);
    one.send(&PLAIN, b"last words").unwrap();
    one.sever([7; 16]);
    assert_eq!(receive(&mut other, Which::Any).unwrap(), b"last words");
    assert!(matches!(receive(&mut other, Which::Any), Err(ReceiveError::Severed(_))));
    other.flush();
    assert!(!other.has_pending_controls(), "nobody hears that it was received");
}

/// A pack is in memory of our own: its messages take another way than those in buffers of their own.
#[test]
fn message_of_which_nothing_was_received_is_still_the_next() {
    let [mut one, mut other] = iucv(Terms::DEFAULT, LIMITS);
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
    let [mut one, mut other] = iucv(Terms::DEFAULT, LIMITS);
    let asked = one.send(&TWO_WAY, &[1; 100]).unwrap();
    one.send(&URGENT, &[2; 100]).unwrap();
    other.poll();
    assert!(other.describe(Which::Message { id: asked, class: 1 }).is_ok());
    other.trim();
    assert_eq!(receive(&mut other, Which::Any).unwrap(), [2; 100]);
    assert_eq!(receive(&mut other, Which::Any).unwrap(), [1; 100]);
    other.reply(asked, false, &[3; 100]).unwrap();
    one.poll();
    one.trim();
    let mut buffer = [0; 100];
    let which = Which::Message { id: asked, class: 2 };
    let (_, bytes, residual) = one.complete(which, &mut buffer).unwrap().unwrap();
    assert_eq!((bytes, residual, buffer), (100, 0, [3; 100]));
}

#[test]
fn each_of_ten_thousand_messages_is_found_by_identity_and_by_class_in_any_order() {
    const MESSAGES: usize = 10_000;
    // Every number once, and neighbours far apart.
    let in_disorder = (0..MESSAGES).map(|number| number * 7919 % MESSAGES);
    let limits = Limits { ours: MESSAGES as u32, ..LIMITS };
    let [mut one, mut other] = iucv(Terms::DEFAULT, limits);
    let mut ids = Vec::new();
    for number in 0..MESSAGES {
        let class = number as u32;
        let urgent = number % 4 == 0;
        let two_way = Outgoing { priority: urgent, target_class: class, ..TWO_WAY };
        let outgoing = Outgoing { source_class: class, tag: class, ..two_way };
        let id = loop {
            match one.push(&outgoing, &class.to_le_bytes()) {
                Ok(id) => break id,
                // They are taken out of the queue when one is looked for that is not there.
                Err(TrySendError::Full) => {
                    let nobodys = other.describe(Which::Class(u32::MAX));
                    assert_eq!(nobodys, Err(ReceiveError::NotFound));
                }
                Err(error) => panic!("{error}"),
            }
        };
        ids.push(id);
    }
    assert_eq!(
        one.push(&PLAIN, b""),
        Err(TrySendError::Send(SendError::Limit { limit: MESSAGES as u32 }))
    );
    let which = |number: usize| {
        let class = number as u32;
        let is_by_class = number.is_multiple_of(3);
        if is_by_class { Which::Class(class) } else { Which::Message { id: ids[number], class } }
    };
    for number in in_disorder.clone() {
        let data = receive(&mut other, which(number)).unwrap();
        assert_eq!(data, (number as u32).to_le_bytes());
        assert_eq!(receive(&mut other, which(number)), Err(ReceiveError::NotFound), "once");
    }
    assert_eq!(other.counts().received, MESSAGES);
    for (replies, number) in in_disorder.enumerate() {
        other.reply(ids[number], false, &data_of(number)).unwrap();
        if replies.is_multiple_of(50) {
            one.poll();
        }
    }
    for number in (0..MESSAGES).rev().map(|number| number * 7919 % MESSAGES) {
        let mut buffer = [0; 8];
        let (completion, bytes, _) = one.complete(which(number), &mut buffer).unwrap().unwrap();
        assert_eq!((completion.id, completion.tag as usize), (ids[number], number));
        assert_eq!(buffer[..bytes], data_of(number));
        assert_eq!(one.complete(which(number), &mut buffer), Ok(None), "once");
    }
    assert_eq!((one.counts(), other.counts()), Default::default());
}

fn data_of(number: usize) -> [u8; 8] {
    (number as u64 * 3).to_le_bytes()
}

/// A search looks at so many messages at a time, whether the other side is still there or not.
#[test]
fn message_is_found_behind_many_others_though_the_path_has_ended() {
    let limits = Limits { ours: 1000, theirs: 1000, ..LIMITS };
    let [mut one, mut other] = iucv(Terms::DEFAULT, limits);
    for _ in 0..600 {
        one.push(&PLAIN, b"before").unwrap();
    }
    one.push(&Outgoing { target_class: 2, ..PLAIN }, b"behind").unwrap();
    one.sever(NO_DATA);
    assert_eq!(receive(&mut other, Which::Class(2)).unwrap(), b"behind");
    let none = receive(&mut other, Which::Class(3)).unwrap_err();
    assert!(matches!(none, ReceiveError::Severed(_)));
}

/// Who may lend nothing says what was received without any storage.
#[test]
fn target_without_storage_says_what_it_has_received() {
    let limits = Limits { ours: 400, theirs: 400, ..LIMITS };
    let terms = Terms { storage_bytes_max: 0, ..Terms::DEFAULT };
    let [mut one, mut other] = iucv(terms, limits);
    let quiet = Outgoing { quiet: true, ..PLAIN };
    for number in 0..5000 {
        one.send(&quiet, b"one of many").unwrap_or_else(|error| panic!("{number}: {error}"));
        receive(&mut other, Which::Any).unwrap();
    }
    other.flush();
    assert_eq!(other.pending_controls(), 0);
}
