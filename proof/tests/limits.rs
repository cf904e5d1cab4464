//! The limits of a path, which hold over all its queues: what is refused and why, and when it is worth
//! another try. What a peer without manners does beyond them.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use fabric::control::Kind;
use fabric::path::{
    Counter, Halves, Incoming, LENDS_PENDING_MAX, Lack, ListError, Reason, Receiver, SEGMENTS_MAX,
    SendError, Sender, Shape, Shared, Terms,
};
use fabric::queue::{DATA_BUFFERS, Entry, RETURNED_WORD, Violation};
use os::doorbell::Listen;
use os::storage::{Storage, StorageOptions};
use proof::bare::{BareQueue, Facing, code, face, face_all, label};
use proof::honest::sides;

const TWO: Shape = Shape { outputs: 2, inputs: 2 };

const LIMIT: u64 = 1 << 20;

fn terms(bytes: u64) -> Terms {
    Terms { storage_bytes_max: bytes, peer_storage_bytes_max: bytes, ..Terms::DEFAULT }
}

fn shared(bytes: usize) -> Shared {
    Shared::create(bytes, StorageOptions::default()).unwrap()
}

const STORAGE: SendError = SendError::Lacking(Lack::Storage { most: LIMIT });

/// Both senders of one side, both receivers of the other, and what else has to live.
fn two_queues(terms: Terms) -> ([Sender; 2], [Receiver; 2], (Halves, Halves)) {
    let (mut one, mut other) = sides(TWO, Kind::MESSAGES, terms);
    let senders = std::mem::take(&mut one.senders).try_into().unwrap();
    let receivers = std::mem::take(&mut other.receivers).try_into().unwrap();
    (senders, receivers, (one, other))
}

fn nothing_comes(receiver: &mut Receiver) {
    assert_eq!(receiver.receive(), Ok(None));
}

/// What was retired counts until the receiver has come there and the sender has looked.
fn until_retired(sender: &mut Sender, receiver: &mut Receiver) {
    nothing_comes(receiver);
    assert_eq!(sender.completed(), None);
}

#[test]
fn bytes_that_one_queue_has_lent_are_not_there_for_another() {
    let ([mut one, mut other], [mut of_one, _of_other], _rest) = two_queues(terms(LIMIT));
    let most = shared(LIMIT as usize - 4096);
    let segment = one.lend_shared(&most).unwrap();
    for _ in 0..3 {
        assert_eq!(other.send(&[], &[1; 1000]), Err(STORAGE), "nothing of its own is out");
        assert_eq!(other.send(&[], &[1; 100_000]), Err(STORAGE));
        assert_eq!(other.lend_shared(&shared(8192)), Err(STORAGE));
    }
    assert_eq!(other.send(&[], b"needs no storage"), Ok(()));
    let all = other.lend_shared(&shared(4096)).unwrap();
    assert_eq!(one.lend_shared(&shared(1)), Err(SendError::Full), "the reader has not seen it");
    nothing_comes(&mut of_one);
    assert_eq!(one.lend_shared(&shared(1)), Err(STORAGE));
    one.retire_shared(segment).unwrap();
    until_retired(&mut one, &mut of_one);
    assert_eq!(other.send(&[], &[1; 1000]), Ok(()));
    other.retire_shared(all).unwrap();
    assert_eq!((one.ended(), other.ended()), (None, None));
}

#[test]
fn storages_that_one_queue_has_lent_are_not_there_for_another() {
    let (mut senders, mut receivers, _rest) = two_queues(Terms::DEFAULT);
    let little = shared(4096);
    for lent in 0..SEGMENTS_MAX {
        senders[lent % 2].lend_shared(&little).unwrap();
        nothing_comes(&mut receivers[lent % 2]);
    }
    let lacking = SendError::Lacking(Lack::Segments { most: SEGMENTS_MAX as u64 });
    for sender in &mut senders {
        assert_eq!(sender.lend_shared(&little), Err(lacking));
        for bytes in [1000, 100_000] {
            assert_eq!(sender.send(&[], &vec![1; bytes]), Err(lacking), "bytes are left");
        }
    }
    senders[0].retire_shared(7).unwrap();
    until_retired(&mut senders[0], &mut receivers[0]);
    senders[1].lend_shared(&little).unwrap();
    nothing_comes(&mut receivers[0]);
    nothing_comes(&mut receivers[1]);
    let lent = |receiver: &mut Receiver| receiver.counters().get(Counter::LentBytes);
    assert_eq!(receivers.iter_mut().map(lent).sum::<u64>(), SEGMENTS_MAX as u64 * 4096);
}

#[test]
fn lends_that_nobody_has_taken_in_keep_their_own_queue_from_lending() {
    let ([mut one, mut other], [mut of_one, mut of_other], _rest) = two_queues(Terms::DEFAULT);
    let little = shared(4096);
    for sender in [&mut one, &mut other] {
        for _ in 0..LENDS_PENDING_MAX / 2 {
            sender.lend_shared(&little).unwrap();
        }
        assert_eq!(sender.lend_shared(&little), Err(SendError::Full), "they will be taken in");
        assert_eq!(sender.send(&[], &[1; 1000]), Err(SendError::Full));
        assert!(!sender.is_ready());
    }
    nothing_comes(&mut of_one);
    assert!(one.is_ready());
    assert_eq!(one.send(&[], &[1; 1000]), Ok(()));
    assert!(!other.is_ready());
    nothing_comes(&mut of_other);
    assert!(other.is_ready());
    other.lend_shared(&little).unwrap();
}

#[test]
fn storage_that_the_user_has_lent_is_lacking_for_messages_until_it_is_retired() {
    let ([mut sender, _other], [mut receiver, _of_other], _rest) = two_queues(terms(LIMIT));
    let segment = sender.lend_shared(&shared(LIMIT as usize)).unwrap();
    nothing_comes(&mut receiver);
    for bytes in [1000, 100_000] {
        assert_eq!(sender.send(&[], &vec![1; bytes]), Err(STORAGE));
        assert_eq!(sender.claim(&[], bytes).map(drop), Err(STORAGE));
    }
    assert_eq!(sender.ended(), None);
    assert_eq!(sender.retire_shared(segment), Ok(()));
    until_retired(&mut sender, &mut receiver);
    for bytes in [1000, 100_000] {
        assert_eq!(sender.send(&[], &vec![1; bytes]), Ok(()));
        assert_eq!(receiver.receive().unwrap().map(|message| message.body.len()), Some(bytes));
    }
}

/// It would wait for what is there already.
#[test]
fn storage_is_lacking_as_soon_as_all_has_come_back_though_nobody_has_looked() {
    let ([mut sender, _other], [mut receiver, _of_other], _rest) = two_queues(terms(LIMIT));
    let large = shared(LIMIT as usize / 2);
    let segment = sender.lend_shared(&large).unwrap();
    let entry = Entry { segment, length: 100, ..Entry::default() };
    sender.send_list(0, &[entry], None).unwrap();
    let more = shared(LIMIT as usize / 2 + 1);
    assert_eq!(sender.lend_shared(&more), Err(SendError::Full), "a list is out");
    assert!(receiver.receive().unwrap().is_some());
    nothing_comes(&mut receiver);
    assert_eq!(sender.lend_shared(&more), Err(STORAGE));
}

#[test]
fn what_comes_back_while_a_message_is_refused_is_not_slept_over() {
    const ROUNDS: usize = 200;
    let Facing { bare, mut sender, shown_writer, .. } = face(Terms::DEFAULT);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            // All comes back at once, some time after the queue is full.
            let (mut returned, mut round) = (0, 0);
            while !stop.load(Ordering::Relaxed) {
                let counter = Counter::Buffers as usize;
                let handed_over = shown_writer.counters.load(counter, Ordering::Acquire);
                if handed_over - returned < DATA_BUFFERS as u64 {
                    thread::yield_now();
                    continue;
                }
                (0..round % 100).for_each(|_| std::hint::spin_loop());
                bare.give_back(handed_over);
                (returned, round) = (handed_over, round + 1);
            }
        });
        let mut slept_over = 0;
        for _ in 0..ROUNDS {
            while sender.send(&[], b"x").is_ok() {}
            let handed_over = sender.counters().get(Counter::Buffers);
            // Refused again and again, until it is not. Whoever waits after a refusal waits for what comes
            // back behind it: nothing does once all has.
            while sender.send(&[], b"x").is_err() {
                let returned = bare.reader.returns.load(RETURNED_WORD, Ordering::Acquire);
                slept_over += usize::from(returned == handed_over && !sender.is_ready());
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert_eq!(slept_over, 0, "of {ROUNDS} refusals");
    });
}

/// What an honest side says to a peer with two queues that did this, over either.
fn reading(terms: Terms, deed: impl FnOnce(&mut [BareQueue])) -> [Option<Reason>; 2] {
    let (mut queues, mut honest) = face_all(TWO, Kind::MESSAGES, terms);
    deed(&mut queues);
    let mut held = Vec::new();
    let mut read = |receiver: &mut Receiver| {
        while receiver.hear(Listen::Now) > 0 {}
        loop {
            match receiver.poll(0) {
                Ok(None) => break None,
                Ok(some) => held.extend(some),
                Err(severed) => break Some(severed.reason),
            }
        }
    };
    let [one, other] = honest.receivers.as_mut_slice() else { panic!("two queues") };
    [read(one), read(other)]
}

const WRONG: Option<Reason> = Some(Reason::Violation(Violation::Storage));

#[test]
fn peer_that_lends_more_than_it_may_over_two_queues_ends_the_one_that_it_is_too_much_for() {
    let lent = |bytes: [usize; 2]| {
        reading(terms(LIMIT), |queues| {
            for (queue, bytes) in queues.iter_mut().zip(bytes) {
                drop(queue.bare.lend(0, bytes));
            }
        })
    };
    let limit = LIMIT as usize;
    assert_eq!(lent([limit / 2, limit / 2]), [None, None]);
    assert_eq!(lent([limit / 2, limit / 2 + 4096]), [None, WRONG]);
    assert_eq!(lent([limit, 4096]), [None, WRONG]);
    assert_eq!(lent([limit + 4096, 4096]), [WRONG, None]);
}

#[test]
fn peer_that_lends_more_storages_than_it_may_over_two_queues_is_found_out() {
    let (mut queues, mut honest) = face_all(TWO, Kind::MESSAGES, Terms::DEFAULT);
    let mut lend = |queue: usize, segment: usize| {
        drop(queues[queue].bare.lend(segment as u16, 4096));
        let receiver = &mut honest.receivers[queue];
        receiver.poll(0).map(drop).map_err(|severed| severed.reason)
    };
    for lent in 0..SEGMENTS_MAX {
        assert_eq!(lend(lent % 2, lent / 2), Ok(()));
    }
    assert_eq!(lend(1, SEGMENTS_MAX - 1), Err(Reason::Violation(Violation::Storage)));
}

#[test]
fn peer_that_passes_descriptors_and_lends_none_of_them_is_found_out_over_all_queues() {
    let passed = |counts: [u64; 2], tags: [u8; 2]| {
        reading(Terms::DEFAULT, |queues| {
            for ((queue, count), tag) in queues.iter().zip(counts).zip(tags) {
                for _ in 0..count {
                    let (_, descriptor) =
                        Storage::create("siga bare", 4096, StorageOptions::default()).unwrap();
                    queue.bare.arrivals.pass(descriptor.as_fd(), tag);
                }
            }
        })
    };
    let half = LENDS_PENDING_MAX / 2;
    assert_eq!(passed([half, half], [0, 1]), [None, None]);
    assert_eq!(passed([half, half + 1], [0, 1]), [None, WRONG]);
    assert_eq!(passed([2 * half, 1], [0, 1]), [None, WRONG]);
    assert_eq!(passed([2 * half + 1, 0], [0, 1]), [WRONG, None]);
    assert_eq!(passed([1, 0], [8, 1]), [WRONG, None], "for a queue that cannot be");
}

#[test]
fn storage_that_was_retired_counts_for_the_reader_until_nobody_reads_it() {
    let Facing { mut bare, mut receiver, .. } = face(terms(LIMIT));
    let list = [Entry { length: 4096, ..Entry::default() }];
    // Lent and retired over and over: what is held counts.
    drop(bare.lend(0, LIMIT as usize / 2));
    bare.prime_entries(label::LIST, 0, &list);
    let Ok(Some(Incoming::List(first))) = receiver.poll(0) else { panic!("a list") };
    bare.retire(0);
    drop(bare.lend(0, LIMIT as usize / 2));
    assert!(matches!(receiver.poll(0), Ok(None)));
    bare.retire(0);
    for _ in 0..10 {
        // The other half of the limit, which nobody reads.
        drop(bare.lend(0, LIMIT as usize / 2));
        bare.retire(0);
        assert!(matches!(receiver.poll(0), Ok(None)));
    }
    receiver.give_back_list(first).unwrap();
    drop(bare.lend(0, LIMIT as usize));
    bare.prime_entries(label::LIST, 0, &list);
    let Ok(Some(Incoming::List(held))) = receiver.poll(0) else { panic!("a list") };
    bare.retire(0);
    bare.control(code::LEND, 0, 4096);
    let severed = receiver.poll(0).unwrap_err();
    assert_eq!(
        severed.reason,
        Reason::Lacking(Lack::Views),
        "the limit holds, and nobody is blamed"
    );
    let mut bytes = [1; 4096];
    held.view(0).unwrap().read(0, &mut bytes).unwrap();
    assert_eq!(bytes, [0; 4096], "what is held is readable all the same");
    receiver.give_back_list(held).unwrap();
}

/// Nobody has broken a rule: what one queue retires counts until the reader has come there.
#[test]
fn storage_that_one_queue_retired_is_not_lent_by_another_before_the_reader_knows() {
    let ([mut one, mut other], [mut of_one, mut of_other], _rest) = two_queues(terms(LIMIT));
    let segment = one.lend_shared(&shared(LIMIT as usize)).unwrap();
    nothing_comes(&mut of_one);
    one.retire_shared(segment).unwrap();
    let refused = other.lend_shared(&shared(LIMIT as usize)).unwrap_err();
    assert!(matches!(refused, SendError::Lacking(Lack::Storage { .. })), "{refused}");
    nothing_comes(&mut of_other);
    until_retired(&mut one, &mut of_one);
    other.lend_shared(&shared(LIMIT as usize)).unwrap();
    nothing_comes(&mut of_other);
}

/// Nobody has broken a rule: the sender knows which lists are out.
#[test]
fn storage_that_was_retired_counts_for_the_sender_until_lists_of_it_are_back() {
    let ([mut sender, _other], [mut receiver, _of_other], _rest) = two_queues(terms(LIMIT));
    let segment = sender.lend_shared(&shared(LIMIT as usize)).unwrap();
    let entry = Entry { segment, length: 100, ..Entry::default() };
    sender.send_list(0, &[entry], Some(1)).unwrap();
    let Ok(Some(Incoming::List(held))) = receiver.poll(0) else { panic!("a list") };
    sender.retire_shared(segment).unwrap();
    let gone = sender.send_list(0, &[entry], None);
    assert_eq!(gone, Err(ListError::NotShared { segment }));
    assert_eq!(sender.lend_shared(&shared(4096)), Err(SendError::Full), "a list is out");
    assert_eq!(sender.send(&[], &[1; 1000]), Err(SendError::Full));
    assert!(!sender.is_ready());
    nothing_comes(&mut receiver);
    receiver.give_back_list(held).unwrap();
    assert!(sender.is_ready());
    assert_eq!(sender.completed(), Some(1));
    assert_eq!(sender.send(&[], &[1; 1000]), Ok(()));
    assert_eq!(receiver.receive().unwrap().map(|message| message.body.len()), Some(1000));
}

#[test]
fn message_of_any_length_that_is_too_long_is_refused() {
    let ([mut sender, _other], [mut receiver, _of_other], _rest) = two_queues(terms(LIMIT));
    let too_long = SendError::TooLong { most: LIMIT / 2 };
    for bytes in [usize::MAX, usize::MAX - 4, usize::MAX - 100, 1 << 62, LIMIT as usize / 2 + 1] {
        let claimed = sender.claim(b"head", bytes).map(drop);
        assert_eq!(claimed, Err(too_long), "{bytes} bytes");
        let built = sender.send_built(b"head", bytes, |_| panic!("there is no room for it"));
        assert_eq!(built, Err(too_long), "{bytes} bytes");
    }
    assert_eq!(sender.counters().get(Counter::Messages), 0);
    nothing_comes(&mut receiver);
}

#[test]
fn nothing_is_read_beyond_a_message_in_its_page() {
    let ([mut sender, _other], [mut receiver, _of_other], _rest) = two_queues(terms(LIMIT));
    sender.send(b"head", &[1; 1000]).unwrap();
    let Ok(Some(Incoming::InPage(message))) = receiver.poll(0) else { panic!("in its page") };
    let mut byte = [0];
    for at in [1000, 1001, usize::MAX - 4, usize::MAX - 3, usize::MAX] {
        assert!(message.read(at, &mut byte).is_err(), "at {at}");
        assert!(message.view().read(at + usize::from(at < 2000) * 4, &mut byte).is_err());
        assert!(message.read(at, &mut []).is_err() || at == 1000);
    }
    assert_eq!((message.read(999, &mut byte), byte), (Ok(()), [1]));
    receiver.give_back(message).unwrap();
}
