use super::*;

/// A packet of `bytes`, the last of which is `last`.
fn packet(bytes: usize, last: u8) -> Vec<u8> {
    let mut packet = vec![0; bytes];
    packet[0] = 0x45;
    packet[bytes - 1] = last;
    packet
}

/// Hands a packet to the driver: the message that is to be sent at once, if there is one.
fn hand(driver: &mut Driver, now: u64, packet: &[u8]) -> Result<Option<Vec<u8>>, NotTaken> {
    match driver.offer(packet[0], packet.len())? {
        Offer::Collect => {
            driver.collect(true, packet.len(), |target| target.copy_from_slice(packet));
            Ok(None)
        }
        Offer::Send(framing, bytes) => {
            let mut message = vec![0; bytes];
            framing.write_one(true, &mut message, |target| target.copy_from_slice(packet));
            driver.sent_one(now, packet.len());
            Ok(Some(message))
        }
    }
}

/// Takes what was collected, as sent.
fn next(driver: &mut Driver, now: u64) -> Option<Vec<u8>> {
    let message = driver.collected()?.to_vec();
    driver.sent_collected(now, message.len());
    Some(message)
}

fn received(driver: &mut Driver, message: &[u8]) -> Vec<Vec<u8>> {
    let Some(mut walk) = driver.receive(message) else { return Vec::new() };
    let mut looks = usize::MAX;
    let next = || {
        let found = driver.next_packet(&mut walk, message, &mut looks);
        found.map(|at| message[at].to_vec())
    };
    std::iter::from_fn(next).collect()
}

fn counts<const N: usize>(driver: &Driver, counters: [Counter; N]) -> [u64; N] {
    counters.map(|counter| driver.counter(counter))
}

#[test]
fn packets_are_collected_while_a_message_is_under_way_and_go_as_one() {
    let mut driver = Driver::new(MTU);
    driver.up(Terms::NETIUCV);
    let first = hand(&mut driver, 10, &packet(20, 1)).unwrap();
    assert_eq!(first.as_deref().map(|message| &message[..3]), Some(&[0, 22, 0x45][..]));
    for last in 2..5 {
        assert_eq!(hand(&mut driver, 11, &packet(20, last)), Ok(None));
        assert!(driver.is_sending() && driver.collected().is_none());
    }
    driver.complete(110);
    let second = next(&mut driver, 200).unwrap();
    assert_eq!(second.len(), 3 * 22 + 2);
    assert_eq!(next(&mut driver, 200), None);
    driver.complete(250);
    driver.complete(999);
    assert!(!driver.is_sending());
    let mut other = Driver::new(MTU);
    other.up(Terms::NETIUCV);
    assert_eq!(received(&mut other, &first.unwrap()), [packet(20, 1)]);
    assert_eq!(received(&mut other, &second), [2, 3, 4].map(|last| packet(20, last)));
    use Counter::*;
    assert_eq!(counts(&driver, [PacketsSent, BytesSent, SentSingle, SentMulti]), [4, 80, 1, 1]);
    assert_eq!(counts(&driver, [PacketsPerMessageMax, MessageBytesSent, SendingNs]), [3, 92, 150]);
    assert_eq!(counts(&other, [MessagesReceived, PacketsReceived, BytesReceived]), [2, 4, 80]);
}

#[test]
fn packets_are_given_back_when_the_buffer_is_full() {
    let mut driver = Driver::new(MTU);
    driver.up(Terms::NETIUCV);
    hand(&mut driver, 0, &packet(MTU, 0)).unwrap();
    // Three of 9216 bytes fit into 32768, and four do not.
    for _ in 0..3 {
        assert_eq!(hand(&mut driver, 0, &packet(MTU, 0)), Ok(None));
    }
    assert_eq!(hand(&mut driver, 0, &packet(MTU, 0)), Err(NotTaken::Full));
    assert_eq!(hand(&mut driver, 0, &packet(1000, 0)), Ok(None));
    driver.complete(0);
    // What waits goes first, also if the message before is complete.
    assert_eq!(hand(&mut driver, 0, &packet(MTU, 0)), Err(NotTaken::Full));
    assert_eq!(next(&mut driver, 0).map(|message| message.len()), Some(3 * 9218 + 1002 + 2));
    assert_eq!(driver.counter(Counter::Full), 2);
}

#[test]
fn line_takes_packets_of_its_mtu_and_none_while_it_is_down() {
    let mut driver = Driver::new(32_764);
    assert_eq!(hand(&mut driver, 0, &packet(20, 0)), Err(NotTaken::Down));
    driver.up(Terms::NETIUCV);
    assert!(hand(&mut driver, 0, &packet(32_764, 0)).is_ok());
    let unfit = Err(NotTaken::Unfit { bytes_max: 32_764 });
    assert_eq!(hand(&mut driver, 0, &packet(32_765, 0)), unfit);
    assert_eq!(hand(&mut driver, 0, &[0x55; 20]), unfit);
    // The partner rejects it.
    driver.lose();
    assert!(!driver.is_sending());
    for last in [1, 2] {
        hand(&mut driver, 0, &packet(20, last)).unwrap();
    }
    driver.down();
    assert_eq!(hand(&mut driver, 0, &packet(20, 0)), Err(NotTaken::Down));
    use Counter::*;
    assert_eq!(counts(&driver, [DroppedDown, DroppedUnfit, DroppedLost, Connected]), [2, 2, 3, 1]);
}

#[test]
fn longest_packet_is_of_the_mtu_of_ip_and_of_the_framing() {
    let wide = Framing::Wide.message_bytes(PACKET_BYTES_MAX);
    let wide = Terms::both(Framing::Wide, wide);
    for (mtu, terms, bytes) in [
        (0, Terms::NETIUCV, 576),
        (1500, Terms::NETIUCV, 1500),
        (2 << 20, Terms::NETIUCV, 32_764),
        (2 << 20, wide, 65_535),
        (65_535, Terms::ctcm(65_535), 65_527),
    ] {
        let mut driver = Driver::new(mtu);
        driver.up(terms);
        assert_eq!(driver.packet_bytes_max(), bytes);
    }
    assert_eq!(Driver::new(usize::MAX).mtu(), 2 << 20);
    assert_eq!(Terms::ctcm(9216).send_bytes_max, 32_768);
    assert_eq!(Terms::ctcm(65_527).send_bytes_max, 65_535);
}

#[test]
fn every_fault_of_a_message_has_a_counter_of_its_own() {
    use Counter::*;
    let of = |terms: Terms, message: &[u8]| {
        let mut driver = Driver::new(MTU);
        driver.up(terms);
        received(&mut driver, message);
        let faults = [
            ReceivedLong,
            ReceivedShort,
            ReceivedBlockLength,
            ReceivedBack,
            ReceivedOut,
            ReceivedTrailing,
            ReceivedType,
            ReceivedNoPacket,
        ];
        let found: Vec<Counter> =
            faults.into_iter().filter(|fault| driver.counter(*fault) > 0).collect();
        assert!(found.iter().all(|fault| driver.counter(*fault) == 1));
        found
    };
    let (netiucv, ctcm) = (Terms::NETIUCV, Terms::ctcm(MTU));
    assert_eq!(of(netiucv, &[0, 3, 0x45, 0, 0]), []);
    assert_eq!(of(netiucv, &vec![0; 32_769]), [ReceivedLong]);
    assert_eq!(of(netiucv, &[0; 4]), [ReceivedShort]);
    assert_eq!(of(netiucv, &[0, 2, 0x45, 0, 0]), [ReceivedBack]);
    assert_eq!(of(netiucv, &[0, 9, 0x45, 0, 0]), [ReceivedOut]);
    assert_eq!(of(netiucv, &[0, 3, 0x45, 0, 0, 1]), [ReceivedTrailing]);
    assert_eq!(of(netiucv, &[0, 3, 0x55, 0, 0]), [ReceivedNoPacket]);
    assert_eq!(of(ctcm, &[0, 8, 0, 7, 8, 0, 0, 0, 0x45]), [ReceivedBlockLength]);
    assert_eq!(of(ctcm, &[0, 9, 0, 7, 8, 6, 0, 0, 0x45]), [ReceivedType]);
    // A line that is down takes nothing.
    let mut down = Driver::new(MTU);
    assert_eq!(received(&mut down, &[0, 3, 0x45, 0, 0]), Vec::<Vec<u8>>::new());
}

#[test]
fn walk_stops_after_as_many_packets_as_it_may_look_at_good_or_bad_and_goes_on_there() {
    let mut driver = Driver::new(1 << 20);
    let (framing, bytes) = (Framing::Wide, 1 << 20);
    driver.up(Terms { framing, send_bytes_max: bytes, receive_bytes_max: bytes });
    // A hundred packets of no version, of a byte each, and a good one.
    let mut message = [0, 0, 0, 1, 0].repeat(100);
    message.extend_from_slice(&[0, 0, 0, 1, 0x45]);
    let mut walk = driver.receive(&message).unwrap();
    for left in [100, 36] {
        let mut looks = 64;
        let found = driver.next_packet(&mut walk, &message, &mut looks);
        assert_eq!(found, (left == 36).then_some(504..505));
        assert_eq!(looks, if left == 36 { 64 - 37 } else { 0 });
        assert_eq!(driver.counter(Counter::ReceivedNoPacket), if left == 36 { 100 } else { 64 });
        assert!(!walk.is_over());
    }
    assert_eq!(driver.next_packet(&mut walk, &message, &mut 64), None);
    assert!(walk.is_over());
}
