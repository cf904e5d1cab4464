use std::os::fd::OwnedFd;

use os::doorbell::{Doorbell, HEARD_RINGS_MAX, Listen};
use os::storage::StorageOptions;

use super::*;
use crate::queue::Violation;
use crate::queue::{DATA_BUFFERS, Entry, EntryFlags};

/// One end of each doorbell of a side, in the order in which [`Side::join`] wants them.
fn bells(shape: Shape) -> (Vec<OwnedFd>, Vec<OwnedFd>) {
    (0..shape.outputs + shape.inputs).map(|_| Doorbell::ends().unwrap()).unzip()
}

fn joined(shape: Shape, terms: Terms) -> (Halves, Halves) {
    let (one, one_descriptors) = Side::create(shape).unwrap();
    let (other, other_descriptors) = Side::create(shape.mirrored()).unwrap();
    let (one_bells, other_bells) = bells(shape);
    let one = one.join(other_descriptors, one_bells, terms).unwrap();
    let other = other.join(one_descriptors, other_bells, terms).unwrap();
    (one, other)
}

/// A sender and the receiver of its queue, and the rest of both sides, which must live.
fn pair(terms: Terms) -> (Sender, Receiver, (Halves, Halves)) {
    let (mut one, mut other) = joined(Shape::SIMPLE, terms);
    let (sender, receiver) = (one.senders.remove(0), other.receivers.remove(0));
    (sender, receiver, (one, other))
}

/// Bytes that tell where they belong.
fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at.wrapping_mul(31) ^ at >> 8 ^ seed.wrapping_mul(97)) as u8).collect()
}

fn expect(receiver: &mut Receiver, head: &[u8], body: &[u8]) {
    let message = receiver.receive().unwrap().expect("a message is there");
    assert_eq!(message.head, head);
    assert!(message.body == body, "body of {} bytes differs", body.len());
}

const SIZES: [usize; 16] =
    [0, 1, 8, 31, 32, 56, 57, 64, 1000, 4096, 4097, 32764, 65_536, 65_537, 100_000, 1_000_000];

#[test]
fn storage_that_was_lent_is_read_without_a_message() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut shared = Shared::create(8192, StorageOptions::default()).unwrap();
    shared.bytes_mut()[5000..5004].copy_from_slice(b"here");
    let lendable = shared.lendable().unwrap();
    assert_eq!(lendable.bytes(), 8192);
    let segment = sender.lend(&lendable).unwrap();
    assert!(receiver.lent(segment).is_none(), "its descriptor has not been taken in");
    sender.send(&[], b"a message behind it").unwrap();
    expect(&mut receiver, &[], b"a message behind it");
    let view = receiver.lent(segment).unwrap();
    let mut found = [0; 4];
    view.read(5000, &mut found).unwrap();
    assert_eq!(&found, b"here");
    assert!(receiver.lent(segment + 1).is_none());
    // What is written later is seen, and what was retired stays readable.
    shared.bytes_mut()[5000..5004].copy_from_slice(b"more");
    sender.retire_shared(segment).unwrap();
    sender.send(&[], &[]).unwrap();
    expect(&mut receiver, &[], &[]);
    view.read(5000, &mut found).unwrap();
    assert_eq!((&found, receiver.lent(segment).is_none()), (b"more", true));
}

#[test]
fn messages_of_every_size_arrive_as_they_were_sent() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for round in 0..3 {
        for (seed, bytes) in SIZES.into_iter().enumerate() {
            let body = pattern(seed + round, bytes);
            let head = pattern(round, [0, 1, HEAD_BYTES_MAX][round]);
            sender.send(&head, &body).unwrap();
            sender.flush();
            expect(&mut receiver, &head, &body);
            assert_eq!(receiver.receive(), Ok(None));
        }
    }
    assert_eq!(
        sender.counters().get(Counter::Messages),
        receiver.counters().get(Counter::Messages)
    );
}

#[test]
fn messages_arrive_in_order_while_the_receiver_is_behind() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut sent = 0;
    let mut got = 0;
    while got < 2000 {
        while sender.push(&[], &pattern(sent, SIZES[sent % SIZES.len()])).is_ok() {
            sent += 1;
        }
        sender.publish();
        let refused = pattern(sent, SIZES[sent % SIZES.len()]);
        assert_eq!(sender.send(&[], &refused), Err(SendError::Full), "still");
        while let Some(message) = receiver.receive().unwrap() {
            assert!(message.body == pattern(got, SIZES[got % SIZES.len()]), "message {got}");
            got += 1;
        }
        assert_eq!(sent, got);
    }
    assert!(sender.counters().get(Counter::Packs) > 0, "small messages were packed");
    assert_eq!(sender.counters().get(Counter::Bytes), receiver.counters().get(Counter::Bytes));
}

#[test]
fn what_is_sent_is_there_and_so_is_what_is_pushed_first_or_flushed() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for _ in 0..500 {
        sender.send(&[], &[7; 200]).unwrap();
        expect(&mut receiver, &[], &[7; 200]);
    }
    assert_eq!(sender.counters().get(Counter::Packs), 0);
    for _ in 0..10 {
        sender.push(&[], b"first").unwrap();
        expect(&mut receiver, &[], b"first");
        sender.push(&[], b"held back: the first was not given back").unwrap();
        assert_eq!(receiver.receive(), Ok(None));
        sender.push(&[], b"and one more").unwrap();
        sender.flush();
        expect(&mut receiver, &[], b"held back: the first was not given back");
        expect(&mut receiver, &[], b"and one more");
    }
}

#[test]
fn sending_hands_over_what_was_pushed_before() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for bytes in [10, 1000, 10_000, 100_000] {
        for pushed in 0..5 {
            sender.push(&[], &[pushed; 100]).unwrap();
        }
        sender.send(&[], &vec![5; bytes]).unwrap();
        for pushed in 0..5 {
            expect(&mut receiver, &[], &[pushed; 100]);
        }
        expect(&mut receiver, &[], &vec![5; bytes]);
    }
}

#[test]
fn built_in_place_or_copied_makes_no_difference_to_the_receiver() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for bytes in SIZES {
        let body = pattern(3, bytes);
        sender.send_built(b"head", bytes, |target| target.copy_from_slice(&body)).unwrap();
        sender.flush();
        expect(&mut receiver, b"head", &body);
        let mut claim = sender.claim(b"claim", bytes).unwrap();
        sender.claimed(&mut claim).unwrap().copy_from_slice(&body);
        sender.commit(claim).unwrap();
        expect(&mut receiver, b"claim", &body);
        let mut claim = sender.claim(b"", bytes + 9).unwrap();
        sender.claimed(&mut claim).unwrap()[..bytes].copy_from_slice(&body);
        claim.truncate(bytes);
        sender.commit(claim).unwrap();
        expect(&mut receiver, b"", &body);
    }
}

#[test]
fn claimed_room_that_is_cancelled_is_used_again() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for bytes in [100, 1_000_000] {
        for _ in 0..1000 {
            let claim = sender.claim(&[], bytes).unwrap();
            sender.cancel(claim).unwrap();
        }
    }
    assert!(sender.counters().get(Counter::LentBytes) < 2 << 20);
    sender.send(&[], b"still works").unwrap();
    expect(&mut receiver, &[], b"still works");
}

#[test]
fn messages_can_be_read_in_place_and_given_back_out_of_order() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut held = Vec::new();
    for round in 0..20 {
        for at in 0..3 {
            sender.send(b"h", &pattern(round * 3 + at, 30_000)).unwrap();
            sender.flush();
            let Ok(Some(Incoming::InPage(message))) = receiver.poll(0) else {
                panic!("a message in a page")
            };
            held.push((round * 3 + at, message));
        }
        let (seed, message) = held.remove(held.len() / 2);
        assert_eq!((message.head_bytes(), message.body_bytes()), (1, 30_000));
        let mut body = vec![0; 30_000];
        message.read(0, &mut body).unwrap();
        assert_eq!(body, pattern(seed, 30_000));
        assert!(message.read(1, &mut body).is_err());
        receiver.give_back(message).unwrap();
        if held.len() > 4 {
            receiver.give_back(held.remove(0).1).unwrap();
            receiver.give_back(held.remove(0).1).unwrap();
        }
    }
}

#[test]
fn large_message_that_nobody_pulls_delays_nothing() {
    let terms = Terms { storage_bytes_max: 4 << 30, ..Terms::DEFAULT };
    let terms = Terms { peer_storage_bytes_max: terms.storage_bytes_max, ..terms };
    let (mut sender, mut receiver, _rest) = pair(terms);
    let claim = sender.claim(b"big", 1 << 30).unwrap();
    sender.commit(claim).unwrap();
    let Ok(Some(Incoming::Announced(mut big))) = receiver.poll(0) else {
        panic!("an announcement")
    };
    assert_eq!((big.head(), big.body_bytes()), (&b"big"[..], 1 << 30));
    for round in 0..1000 {
        let body = pattern(round, SIZES[round % SIZES.len()]);
        sender.send(&[], &body).unwrap();
        sender.flush();
        expect(&mut receiver, &[], &body);
    }
    let mut piece = [1; 1000];
    assert_eq!(receiver.pull(&mut big, &mut piece), Ok(1000));
    assert_eq!(piece, [0; 1000]);
    sender.trim();
    assert!(sender.counters().get(Counter::LentBytes) >= 1 << 30, "it waits where it was built");
    receiver.release(big).unwrap();
    while sender.trim() {}
    assert!(sender.counters().get(Counter::LentBytes) < 1 << 30);
}

#[test]
fn large_messages_are_pulled_and_released_in_any_order() {
    let (mut sender, mut receiver, _rest) =
        pair(Terms { announced_bytes_max: 100 << 20, ..Terms::DEFAULT });
    let mut waiting = Vec::new();
    for seed in 0..20 {
        sender.send(&[seed as u8], &pattern(seed, 70_000 + seed)).unwrap();
        let Ok(Some(Incoming::Announced(message))) = receiver.poll(0) else {
            panic!("an announcement")
        };
        waiting.push((seed, message));
    }
    while !waiting.is_empty() {
        let (seed, mut message) = waiting.swap_remove(waiting.len() / 3);
        let mut body = Vec::new();
        while message.left_bytes() > 0 {
            let mut piece = vec![0; message.left_bytes().min(30_000)];
            let bytes = receiver.pull(&mut message, &mut piece).unwrap();
            body.extend_from_slice(&piece[..bytes]);
        }
        assert_eq!(body, pattern(seed, 70_000 + seed));
        receiver.release(message).unwrap();
    }
}

#[test]
fn lists_carry_entries_metadata_and_cookies() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut shared = Shared::create(1 << 20, StorageOptions::default()).unwrap();
    shared.bytes_mut()[4096..8192].copy_from_slice(&pattern(1, 4096));
    let segment = sender.lend_shared(&shared).unwrap();
    for count in 1..=16 {
        let entries: Vec<Entry> = (0..count)
            .map(|at| Entry {
                segment,
                offset: 4096 + at * 256,
                length: 256,
                flags: if at + 1 == count { EntryFlags::LAST_ENTRY } else { EntryFlags::NONE },
                metadata: 0xfeed_0000 + at as u32,
            })
            .collect();
        sender.send_list(9, &entries, Some(count)).unwrap();
        let Ok(Some(Incoming::List(list))) = receiver.poll(0) else { panic!("a list") };
        assert_eq!(list.note(), 9);
        assert!(list.entries().eq(&entries));
        let mut bytes = [0; 256];
        list.view(count as usize - 1).unwrap().read(0, &mut bytes).unwrap();
        assert!(list.view(count as usize).is_none());
        assert_eq!(bytes, pattern(1, 4096)[(count as usize - 1) * 256..][..256]);
        assert_eq!(sender.completed(), None);
        receiver.give_back_list(list).unwrap();
        assert_eq!(sender.completed(), Some(count));
    }
}

#[test]
fn retired_shared_storage_stays_readable_for_lists_that_are_held() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut shared = Shared::create(4096, StorageOptions::default()).unwrap();
    shared.bytes_mut().fill(1);
    let segment = sender.lend_shared(&shared).unwrap();
    let entry = Entry { segment, length: 4096, ..Entry::default() };
    sender.send_list(0, &[entry], None).unwrap();
    let Ok(Some(Incoming::List(old))) = receiver.poll(0) else { panic!("a list") };
    sender.retire_shared(segment).unwrap();
    let mut other = Shared::create(4096, StorageOptions::default()).unwrap();
    other.bytes_mut().fill(2);
    assert_eq!(sender.lend_shared(&other), Ok(segment), "the number is used again");
    sender.send_list(0, &[entry], None).unwrap();
    let Ok(Some(Incoming::List(new))) = receiver.poll(0) else { panic!("a list") };
    let mut byte = [0];
    old.view(0).unwrap().read(7, &mut byte).unwrap();
    assert_eq!(byte, [1]);
    new.view(0).unwrap().read(7, &mut byte).unwrap();
    assert_eq!(byte, [2]);
    receiver.give_back_list(old).unwrap();
    receiver.give_back_list(new).unwrap();
}

#[test]
fn idle_storage_is_retired_after_a_period_without_use() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for round in 0..3 {
        for bytes in SIZES {
            sender.send(&[], &pattern(round, bytes)).unwrap();
            sender.flush();
            expect(&mut receiver, &[], &pattern(round, bytes));
        }
        receiver.announce_sleep();
        receiver.wake();
        assert!(sender.trim());
        assert!(sender.counters().get(Counter::LentBytes) > 0, "used a moment ago");
        assert!(!sender.trim());
        assert_eq!(sender.counters().get(Counter::LentBytes), 0);
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!(receiver.counters().get(Counter::LentBytes), 0);
    }
}

#[test]
fn control_has_room_behind_a_full_queue() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let mut sent = 0;
    while sender.send(&[], &[1; 8]).is_ok() {
        sender.flush();
        sent += 1;
    }
    assert_eq!(sent, DATA_BUFFERS);
    receiver.quiesce();
    assert_eq!(sender.send(&[], b"x"), Err(SendError::Quiesced));
    sender.sever(*b"0123456789abcdef");
    for _ in 0..sent {
        assert_eq!(receiver.known_point(), None);
        expect(&mut receiver, &[], &[1; 8]);
    }
    let ended = receiver.receive().unwrap_err();
    assert_eq!((ended.reason, &ended.data), (Reason::Peer, b"0123456789abcdef"));
    assert_eq!(receiver.known_point(), Some(sent as u64));
}

#[test]
fn quiesced_sender_resumes() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for round in 1..5 {
        sender.send(&[], b"before").unwrap();
        receiver.quiesce();
        sender.hear(Listen::Now);
        assert_eq!(sender.send(&[], b"during"), Err(SendError::Quiesced));
        expect(&mut receiver, &[], b"before");
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!(receiver.known_point(), Some(round));
        receiver.resume();
        assert_eq!(receiver.known_point(), None);
    }
}

#[test]
fn what_was_handed_over_is_received_after_the_sender_is_gone() {
    let (mut sender, mut receiver, rest) = pair(Terms::DEFAULT);
    for seed in 0..50 {
        sender.send(&[], &pattern(seed, 1000)).unwrap();
    }
    sender.send(&[], &pattern(50, 100_000)).unwrap();
    drop((sender, rest));
    while receiver.ended().is_none() {
        receiver.hear(Listen::Forever);
    }
    for seed in 0..50 {
        expect(&mut receiver, &[], &pattern(seed, 1000));
    }
    expect(&mut receiver, &[], &pattern(50, 100_000));
    assert_eq!(receiver.receive().unwrap_err().reason, Reason::Gone);
}

#[test]
fn sender_learns_that_the_receiver_has_severed() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    sender.send(&[], b"unread").unwrap();
    receiver.sever([5; USER_DATA_BYTES]);
    let severed = Severed { reason: Reason::Peer, data: [5; USER_DATA_BYTES] };
    assert_eq!(sender.send(&[], b"x"), Err(SendError::Severed(severed)));
    assert!(sender.is_ready(), "nobody sleeps on a path that has ended");
}

#[test]
fn sleeping_reader_is_rung_once_and_sleeping_writer_when_there_is_room() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    sender.send(&[], b"awake").unwrap();
    sender.flush();
    assert_eq!(sender.counters().get(Counter::Rings), 0);
    expect(&mut receiver, &[], b"awake");
    receiver.announce_sleep();
    assert!(!receiver.is_ready());
    for _ in 0..3 {
        sender.send(&[], b"wake up").unwrap();
        sender.flush();
    }
    assert_eq!(sender.counters().get(Counter::Rings), 1);
    assert_eq!(receiver.hear(Listen::Forever), 1);
    receiver.wake();

    while sender.send(&[], &[0; 32_000]).is_ok() {}
    sender.announce_sleep();
    assert!(!sender.is_ready());
    while receiver.receive().unwrap().is_some() {}
    sender.hear(Listen::Forever);
    sender.wake();
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &[0; 32_000]), Ok(()));
}

#[test]
fn ringing_can_be_deferred_by_count_and_until_asked() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    // The first message in a page comes with storage, which rings.
    sender.send(&[], &[1; 100]).unwrap();
    expect(&mut receiver, &[], &[1; 100]);
    while receiver.hear(Listen::Now) > 0 {}
    receiver.announce_sleep();
    sender.set_ringing(Ringing::After(3));
    for _ in 0..2 {
        sender.send(&[], &[1; 10]).unwrap();
        sender.publish();
    }
    assert_eq!((sender.unrung(), receiver.hear(Listen::Now)), (2, 0));
    sender.send(&[], &[1; 10]).unwrap();
    sender.publish();
    assert_eq!((sender.unrung(), receiver.hear(Listen::Now)), (0, 1));
    receiver.wake();
    receiver.announce_sleep();
    sender.set_ringing(Ringing::Deferred);
    for _ in 0..10 {
        sender.send(&[], &[1; 10]).unwrap();
    }
    sender.publish();
    assert_eq!(receiver.hear(Listen::Now), 0);
    sender.ring();
    assert_eq!(receiver.hear(Listen::Now), 1);
}

#[test]
fn what_comes_next_can_be_foreseen_and_is_not_taken() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    assert_eq!(receiver.foresee(0), None);
    sender.send(&[1; 16], &[2; 12]).unwrap();
    sender.send(&[3; 16], &[4; 90]).unwrap();
    sender.send(&[5; 16], &[6; 1000]).unwrap();
    for _ in 0..2 {
        let bytes = receiver.foresee(0).unwrap();
        assert_eq!((&bytes[..16], &bytes[16..28]), (&[1; 16][..], &[2; 12][..]));
        let bytes = receiver.foresee(1).unwrap();
        assert_eq!((&bytes[..16], &bytes[16..]), (&[3; 16][..], &[4; 40][..]));
        // In a page; not there; beyond the queue.
        for behind in [2, 3, 255, 256, usize::MAX] {
            assert_eq!(receiver.foresee(behind), None, "{behind}");
        }
    }
    expect(&mut receiver, &[1; 16], &[2; 12]);
    assert_eq!(receiver.foresee(0).unwrap()[..16], [3; 16]);
    expect(&mut receiver, &[3; 16], &[4; 90]);
    assert_eq!(receiver.foresee(0), None);
    expect(&mut receiver, &[5; 16], &[6; 1000]);
    assert_eq!(receiver.foresee(0), None);
}

#[test]
fn receiver_learns_how_many_there_are_when_it_has_caught_up_with_a_stream() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    assert_eq!(receiver.receive(), Ok(None));
    for number in 0..20 {
        sender.send(&[], &pattern(number, 64)).unwrap();
    }
    for number in 0..4 {
        assert!(!receiver.has_caught_up());
        expect(&mut receiver, &[], &pattern(number, 64));
    }
    assert!(receiver.has_caught_up());
    receiver.look_ahead();
    for number in 4..20 {
        assert!(!receiver.has_caught_up());
        expect(&mut receiver, &[], &pattern(number, 64));
    }
    assert!(receiver.has_caught_up());
    receiver.look_ahead();
    assert!(receiver.has_caught_up(), "the sender shows no more");
    assert_eq!(receiver.receive(), Ok(None));
    assert!(!receiver.has_caught_up());
}

#[test]
fn receiver_of_half_a_large_message_has_not_caught_up() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for number in 0..4 {
        sender.send(&[], &pattern(number, 64)).unwrap();
    }
    // More than one call copies.
    let large = pattern(4, 3 << 20);
    sender.send(&[], &large).unwrap();
    for number in 0..4 {
        expect(&mut receiver, &[], &pattern(number, 64));
    }
    assert_eq!(receiver.receive(), Ok(None));
    assert!(!receiver.has_caught_up(), "the rest of it is there, and no buffer is waited for");
    assert_eq!(receiver.receive(), Ok(None));
    expect(&mut receiver, &[], &large);
    assert!(receiver.has_caught_up());
}

#[test]
fn packed_messages_can_be_foreseen() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    // The first goes alone; while the receiver is behind, the others are packed.
    for seed in 1..=4 {
        sender.push(&[seed; 16], &[seed; 200]).unwrap();
    }
    sender.flush();
    assert!(receiver.foresee_packed().is_none());
    for seed in 1..=4 {
        expect(&mut receiver, &[seed; 16], &[seed; 200]);
        let next = receiver.foresee_packed();
        if matches!(seed, 2 | 3) {
            let Message { head, body } = next.unwrap();
            assert_eq!((head, body), (&[seed + 1; 16][..], &[seed + 1; 200][..]));
        } else {
            assert!(next.is_none());
        }
    }
}

#[test]
fn message_beyond_the_limit_is_refused_with_the_limit() {
    let (mut sender, _receiver, _rest) = pair(Terms::DEFAULT);
    let most = Terms::DEFAULT.message_bytes_max();
    let error = sender.claim(&[], most as usize + 1).unwrap_err();
    assert_eq!(error, SendError::TooLong { most });
    assert!(sender.claim(&[], most as usize).is_ok());
}

#[test]
fn queues_of_a_path_are_independent() {
    let shape = Shape { outputs: 4, inputs: 8 };
    let (mut one, mut other) = joined(shape, Terms::DEFAULT);
    assert_eq!((one.senders.len(), one.receivers.len()), (4, 8));
    assert_eq!((other.senders.len(), other.receivers.len()), (8, 4));
    for (seed, sender) in one.senders.iter_mut().chain(&mut other.senders).enumerate() {
        sender.send(&[], &pattern(seed, 5000)).unwrap();
    }
    for (seed, receiver) in other.receivers.iter_mut().chain(&mut one.receivers).enumerate() {
        expect(receiver, &[], &pattern(seed, 5000));
    }
    other.receivers.remove(1).sever(NO_DATA);
    assert!(matches!(one.senders[1].send(&[], b"x"), Err(SendError::Severed(_))));
    assert_eq!(one.senders[2].send(&[], b"x"), Ok(()));
}

#[test]
fn each_half_hears_its_partner_alone_whatever_the_shape() {
    for (outputs, inputs) in [(1, 1), (4, 1), (1, 4), (3, 2)] {
        let (mut one, mut other) = joined(Shape { outputs, inputs }, Terms::DEFAULT);
        for from_one in [true, false] {
            for queue in 0..if from_one { outputs } else { inputs } {
                let (from, to) =
                    if from_one { (&mut one, &mut other) } else { (&mut other, &mut one) };
                to.receivers[queue].announce_sleep();
                from.senders[queue].send(&[], b"x").unwrap();
                assert!(heard(from).is_empty());
                assert_eq!(heard(to), [format!("receiver {queue}")]);
                to.receivers[queue].wake();
                from.senders[queue].announce_sleep();
                expect(&mut to.receivers[queue], &[], b"x");
                to.receivers[queue].announce_sleep();
                to.receivers[queue].wake();
                assert!(heard(to).is_empty());
                assert_eq!(heard(from), [format!("sender {queue}")]);
                from.senders[queue].wake();
            }
        }
    }
}

#[test]
fn half_that_is_about_to_sleep_takes_no_ring_of_another_that_sleeps_already() {
    let shape = Shape { outputs: 2, inputs: 2 };
    let (one, one_descriptors) = Side::create(shape).unwrap();
    let (other, other_descriptors) = Side::create(shape).unwrap();
    // Two doorbells for all.
    let (bells, other_bells) = bells(Shape::SIMPLE);
    let mut one = one.join(other_descriptors, bells, Terms::DEFAULT).unwrap();
    let mut other = other.join(one_descriptors, other_bells, Terms::DEFAULT).unwrap();
    // So many sleeps have left rings on the line, perhaps, that it is time to hear them. The first did.
    for sleep in 0..HEARD_RINGS_MAX {
        other.receivers[1].announce_sleep();
        if sleep == 0 {
            one.senders[1].send(&[], b"found by a poll").unwrap();
            expect(&mut other.receivers[1], &[], b"found by a poll");
        }
        other.receivers[1].wake();
    }
    one.senders[0].set_ringing(Ringing::Deferred);
    one.senders[0].send(&[], b"read before its ring").unwrap();
    expect(&mut other.receivers[0], &[], b"read before its ring");
    other.receivers[0].announce_sleep();
    one.senders[0].ring();
    other.receivers[1].announce_sleep();
    assert_eq!(other.receivers[0].hear(Listen::Now), 1, "a sleep is rung for once");
}

#[test]
fn sender_that_sleeps_and_is_refused_again_and_again_keeps_its_ring() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    while sender.send(&[], b"x").is_ok() {}
    sender.announce_sleep();
    expect(&mut receiver, &[], b"x");
    receiver.announce_sleep();
    for _ in 0..200 {
        let _ = sender.send(&[], b"x");
    }
    assert_eq!(sender.hear(Listen::Now), 1, "a sleep is rung for once");
}

/// The halves of a side whose doorbell rang.
fn heard(side: &mut Halves) -> Vec<String> {
    let senders = side.senders.iter_mut().map(|half| ("sender", half.hear(Listen::Now)));
    let senders: Vec<_> = senders.enumerate().collect();
    let receivers = side.receivers.iter_mut().map(|half| ("receiver", half.hear(Listen::Now)));
    let all = senders.into_iter().chain(receivers.enumerate());
    let rang = all.filter(|(_, (_, rings))| *rings > 0);
    rang.map(|(queue, (half, _))| format!("{half} {queue}")).collect()
}

#[test]
fn half_that_ends_leaves_the_other_its_doorbells() {
    let (mut one, mut other) = joined(Shape::SIMPLE, Terms::DEFAULT);
    one.senders.clear();
    other.receivers[0].hear(Listen::Now);
    assert!(other.receivers[0].ended().is_some());
    one.receivers[0].announce_sleep();
    other.senders[0].send(&[], b"x").unwrap();
    assert_eq!(one.receivers[0].hear(Listen::Forever), 1);
    other.senders[0].announce_sleep();
    expect(&mut one.receivers[0], &[], b"x");
    one.receivers[0].announce_sleep();
    one.receivers.clear();
    assert_eq!(other.senders[0].hear(Listen::Forever), 1);
    other.senders[0].hear(Listen::Forever);
    assert!(other.senders[0].ended().is_some());
}

#[test]
fn sides_of_different_shape_are_not_joined() {
    let (one, _descriptors) = Side::create(Shape::SIMPLE).unwrap();
    let (_other, other) = Side::create(Shape { outputs: 2, inputs: 1 }).unwrap();
    let (bells, _) = bells(Shape::SIMPLE);
    assert!(one.join(other, bells, Terms::DEFAULT).is_err());
}

#[test]
fn storage_beyond_the_limit_is_not_borrowed() {
    let terms = Terms { peer_storage_bytes_max: 1 << 20, ..Terms::DEFAULT };
    let (mut sender, mut receiver, _rest) = pair(terms);
    sender.send(&[], &pattern(0, 1_200_000)).unwrap();
    let ended = receiver.receive().unwrap_err();
    assert_eq!(ended.reason, Reason::Violation(Violation::Storage));
    assert!(matches!(
        sender.send(&[], b"x"),
        Err(SendError::Severed(Severed { reason: Reason::ViolationReported, .. }))
    ));
}

#[test]
fn view_that_outlives_its_storage_is_not_held_against_the_peer() {
    let terms =
        Terms { storage_bytes_max: 1 << 20, peer_storage_bytes_max: 1 << 20, ..Terms::DEFAULT };
    let (mut sender, mut receiver, _rest) = pair(terms);
    let shared = Shared::create(768 << 10, StorageOptions::default()).unwrap();
    let segment = sender.lend_shared(&shared).unwrap();
    assert_eq!(receiver.receive(), Ok(None));
    let view = receiver.lent(segment).unwrap();
    sender.retire_shared(segment).unwrap();
    assert_eq!(receiver.receive(), Ok(None));
    // Within the sender's limit: what it has lent before is retired.
    sender.lend_shared(&shared).unwrap();
    let ended = receiver.receive().unwrap_err();
    assert_eq!(ended.reason, Reason::Lacking(Lack::Views), "the user's own doing");
    assert_eq!(view.bytes(), 768 << 10);

    let (mut sender, mut receiver, _rest) = pair(terms);
    for _ in 0..3 {
        let segment = sender.lend_shared(&shared).unwrap();
        assert_eq!(receiver.receive(), Ok(None));
        drop(receiver.lent(segment).unwrap());
        sender.retire_shared(segment).unwrap();
        assert_eq!(receiver.receive(), Ok(None));
    }
}

/// A receiver that has received everything withholds too little to stop a sender, whatever it does afterwards: it may
/// wait for somebody who waits for the sender.
#[test]
fn sender_goes_on_when_all_was_received_and_nobody_polls() {
    for (window_bytes, storage_bytes_max) in [
        (1, 1 << 20),
        (4096, 64 << 20),
        (4096, PAGE_BYTES as u64),
        (1 << 20, 3 * PAGE_BYTES as u64),
    ] {
        let terms = Terms {
            window_bytes,
            storage_bytes_max,
            peer_storage_bytes_max: storage_bytes_max,
            ..Terms::DEFAULT
        };
        for bytes in [1, 64, 113, 1000, 5000, 20_000, 30_000] {
            let (mut sender, mut receiver, _rest) = pair(terms);
            for number in 0..500 {
                let body = pattern(number, bytes);
                assert_eq!(sender.send(&[], &body), Ok(()), "{bytes} B, {number}, {terms:?}");
                expect(&mut receiver, &[], &body);
            }
        }
    }
}

#[test]
fn doorbell_abuse_ends_the_path() {
    let (one, one_descriptors) = Side::create(Shape::SIMPLE).unwrap();
    let (_other, other_descriptors) = Side::create(Shape::SIMPLE).unwrap();
    let (ours, theirs) = bells(Shape::SIMPLE);
    let mut halves = one.join(other_descriptors, ours, Terms::DEFAULT).unwrap();
    let abuser = Doorbell::adopt(theirs.into_iter().next().unwrap()).unwrap();
    let receiver = &mut halves.receivers[0];
    for _ in 0..2_000 {
        for _ in 0..8 {
            abuser.ring();
        }
        receiver.hear(Listen::Now);
    }
    let ended = receiver.receive().unwrap_err();
    assert_eq!(ended.reason, Reason::Violation(Violation::Doorbell));
    drop(one_descriptors);
}

#[test]
fn writer_refused_by_a_quiet_path_is_ready_when_it_is_resumed() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    sender.send(&[], &[1; 100]).unwrap();
    expect(&mut receiver, &[], &[1; 100]);
    assert_eq!(receiver.receive(), Ok(None));
    receiver.quiesce();
    assert_eq!(sender.send(&[], b"x"), Err(SendError::Quiesced));
    assert_eq!(sender.hear(Listen::Now), 1);
    sender.announce_sleep();
    assert!(!sender.is_ready(), "what came back does not make a quiet path ready");
    receiver.resume();
    assert_eq!(sender.hear(Listen::Now), 1);
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], b"x"), Ok(()));
}

#[test]
fn writer_that_waits_for_room_learns_of_quiet() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    while sender.send(&[], &[1; 8]).is_ok() {}
    assert!(!sender.is_ready());
    receiver.quiesce();
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &[1; 8]), Err(SendError::Quiesced));
    assert!(!sender.is_ready());
    receiver.resume();
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &[1; 8]), Err(SendError::Full));
    assert!(!sender.is_ready());
}

#[test]
fn rings_that_nobody_listened_for_leave_room_on_the_line_for_storage() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    for _ in 0..2000 {
        receiver.announce_sleep();
        sender.send(&[], b"a ring").unwrap();
        sender.flush();
        // The last poll before it sleeps finds the message, so it does not listen.
        assert!(receiver.is_ready());
        receiver.wake();
        expect(&mut receiver, &[], b"a ring");
    }
    assert_eq!(sender.send(&[], &[1; 100]), Ok(()), "needs storage, which is lent with a ring");
    sender.flush();
    expect(&mut receiver, &[], &[1; 100]);
}

#[test]
fn storage_that_lies_idle_makes_room_for_what_is_needed() {
    let bytes = 256 << 10;
    let terms = Terms { storage_bytes_max: bytes, ..Terms::DEFAULT };
    let (mut sender, mut receiver, _rest) = pair(terms);
    for round in 0..3 {
        let (small, large) = (pattern(round, 200), pattern(round, 100_000));
        for body in [&large, &large, &small, &small, &large] {
            if sender.send(&[], body) == Err(SendError::Full) {
                // What lies idle counts until the reader has forgotten it.
                assert_eq!(receiver.receive(), Ok(None));
                assert!(sender.is_ready());
                assert_eq!(sender.send(&[], body), Ok(()), "{} bytes in round {round}", body.len());
            }
            sender.flush();
            expect(&mut receiver, &[], body);
            assert_eq!(receiver.receive(), Ok(None));
        }
        // All of it for two large messages.
        assert_eq!(
            (sender.send(&[], &large), sender.send(&[], &large)),
            (Ok(()), Err(SendError::Full))
        );
        expect(&mut receiver, &[], &large);
        assert_eq!(receiver.receive(), Ok(None));
        assert_eq!((sender.send(&[], &large), sender.send(&[], &large)), (Ok(()), Ok(())));
        assert_eq!(sender.counters().get(Counter::LentBytes), bytes);
        assert_eq!(sender.send(&[], &small), Err(SendError::Full), "nothing lies idle");
        expect(&mut receiver, &[], &large);
        expect(&mut receiver, &[], &large);
        assert_eq!(receiver.receive(), Ok(None));
        assert!(sender.is_ready());
    }
}

#[test]
fn any_number_of_empty_rooms_can_be_claimed() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let claims: Vec<_> = (0..70_000).map(|_| sender.claim(&[], 0).unwrap()).collect();
    for claim in claims {
        sender.cancel(claim).unwrap();
    }
    let claim = sender.claim(&[], 0).unwrap();
    sender.commit(claim).unwrap();
    expect(&mut receiver, &[], &[]);
}

#[test]
fn list_longer_than_a_receiver_would_copy_is_refused() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    let shared = Shared::create(512 << 10, StorageOptions::default()).unwrap();
    let segment = sender.lend_shared(&shared).unwrap();
    let all = Entry { segment, length: 512 << 10, ..Entry::default() };
    assert_eq!(sender.send_list(0, &[all, all], None), Ok(()));
    let most = LIST_BYTES_MAX;
    let refused = sender.send_list(0, &[all, all, all], None);
    assert_eq!(refused, Err(SendError::TooLong { most }.into()));
    expect(&mut receiver, &[], &vec![0; 1 << 20]);
    assert_eq!(receiver.receive(), Ok(None));
}

#[test]
fn list_that_makes_no_sense_is_refused() {
    let (mut sender, _receiver, _rest) = pair(Terms::DEFAULT);
    let shared = Shared::create(4096, StorageOptions::default()).unwrap();
    let segment = sender.lend_shared(&shared).unwrap();
    let entry = Entry { segment, length: 1, ..Entry::default() };
    let refused = |sender: &mut Sender, entries: &[Entry]| sender.send_list(0, entries, None);
    for offset in [4096, u64::MAX] {
        let outside = Entry { offset, ..entry };
        let error = ListError::Range { offset, length: 1, bytes: 4096 };
        assert_eq!(refused(&mut sender, &[entry, outside]), Err(error));
    }
    let foreign = Entry { segment: segment + 1, ..entry };
    let error = ListError::NotShared { segment: segment + 1 };
    assert_eq!(refused(&mut sender, &[foreign]), Err(error));
    assert_eq!(sender.retire_shared(segment + 1), Err(error));
    for entries in [0, 17] {
        let error = ListError::Entries { entries };
        assert_eq!(refused(&mut sender, &vec![entry; entries]), Err(error));
    }
    assert_eq!(refused(&mut sender, &[entry; 16]), Ok(()));
}

#[test]
fn reader_is_rung_for_storage_that_is_retired_though_the_send_is_refused() {
    let terms = Terms { storage_bytes_max: 256 << 10, ..Terms::DEFAULT };
    let (mut sender, mut receiver, _rest) = pair(terms);
    sender.send(b"h", &[0; PAGE_BYTES]).unwrap();
    sender.send(&[], &[1; 200]).unwrap();
    expect(&mut receiver, b"h", &[0; PAGE_BYTES]);
    expect(&mut receiver, &[], &[1; 200]);
    let claim = sender.claim(&[], 200).unwrap();
    receiver.announce_sleep();
    while receiver.hear(Listen::Now) > 0 {}
    // The segment of the first is given up, and does not suffice: what is claimed is ours to give up.
    let lacking = SendError::Lacking(Lack::Storage { most: terms.storage_bytes_max });
    assert_eq!(sender.send(&[], &[2; PAGE_BYTES + 1]), Err(SendError::Full));
    assert!(receiver.is_ready());
    assert_eq!(receiver.hear(Listen::Now), 1);
    assert_eq!(receiver.receive(), Ok(None));
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &[2; PAGE_BYTES + 1]), Err(lacking));
    sender.cancel(claim).unwrap();
}

#[test]
fn what_is_pushed_once_the_end_is_known_is_refused() {
    let (mut sender, mut receiver, _rest) = pair(Terms::DEFAULT);
    sender.send(&[], b"a receiver that is behind").unwrap();
    sender.push(&[], b"first").unwrap();
    sender.push(&[], b"packed").unwrap();
    receiver.sever(NO_DATA);
    sender.hear(Listen::Now);
    assert!(matches!(sender.push(&[], b"too late"), Err(SendError::Severed(_))));
}

#[test]
fn writer_that_waits_for_a_slot_is_ready_when_one_is_released() {
    let (mut sender, mut receiver, _rest) = pair(Terms { messages_max: 1, ..Terms::DEFAULT });
    let large = [1; PAGE_BYTES + 1];
    sender.send(&[], &large).unwrap();
    let Ok(Some(Incoming::Announced(held))) = receiver.poll(0) else { panic!("large") };
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &large), Err(SendError::Full));
    sender.announce_sleep();
    assert!(!sender.is_ready());
    receiver.release(held).unwrap();
    assert_eq!(sender.hear(Listen::Forever), 1);
    assert!(sender.is_ready());
    assert_eq!(sender.send(&[], &large), Ok(()));
}
