//! A line driver whose partner sends, asks and answers what a script says.

use net::lan::frame::Mac;
use net::links::{
    Act, Answer, CONNECT_NS, Connector, Counter, Driver, Greeting, NotTaken, Offer, Terms,
    Unconnected,
};

use super::DEEDS_MAX;
use super::script::{Script, TAME};

/// Bytes of an Ethernet header, which the stack has in front of each packet.
const HEADER_BYTES: usize = 14;

/// Runs one line driver, and a second one that takes what the first sends.
pub fn line_messages(program: &[u8]) {
    let mut script = Script::new(program);
    let mtu = script.pick(&[576, 1500, 9216, 32_764, 65_535, 1 << 20, 2 << 20]);
    let greeting = Greeting::new(None, Connector::wide_bytes_max(mtu));
    let mut line = Line {
        connector: Connector::new(greeting, script.below(2) == 0),
        greeting,
        driver: Driver::new(mtu),
        partner: Driver::new(mtu),
        now: 0,
        asked: None,
        waiting: Vec::new(),
        sent: Vec::new(),
    };
    line.connector.start(0);
    for _ in 0..DEEDS_MAX {
        if script.is_over() {
            break;
        }
        line.deed(&mut script);
    }
    // Whatever came before, a line that comes up serves.
    line.connector.severed(line.now, &mut line.driver);
    line.up(Terms::NETIUCV);
    line.hand(&packet(40, 1));
    let received = line.receive(&line.sent.clone());
    assert_eq!(received, [packet(40, 1)], "a line that is up again");
}

struct Line {
    connector: Connector,
    greeting: Greeting,
    driver: Driver,
    /// Takes messages on the same terms.
    partner: Driver,
    now: u64,
    /// When the partner was asked last.
    asked: Option<u64>,
    /// Packets that were collected.
    waiting: Vec<Vec<u8>>,
    /// The last message that was sent.
    sent: Vec<u8>,
}

/// A packet that begins as one of IP.
fn packet(bytes: usize, last: u8) -> Vec<u8> {
    let mut packet = vec![last; bytes.max(1)];
    packet[0] = if last & 1 == 0 { 0x45 } else { 0x60 };
    packet
}

impl Line {
    fn deed(&mut self, script: &mut Script<'_>) {
        match script.below(12) {
            0..=2 => {
                let bytes = script.pick(&[1, 20, 40, 576, 1500, 9216, 32_764, 65_535, 65_536]);
                let packet = match script.below(TAME) {
                    0 => script.bytes(100).to_vec(),
                    _ => packet(bytes, script.below(256) as u8),
                };
                self.hand(&packet);
            }
            3 => {
                self.driver.complete(self.now);
                self.send_collected();
            }
            4 => self.driver.lose(),
            5 | 6 => {
                let message = script.bytes(300).to_vec();
                self.receive(&message);
            }
            7 => {
                // What an honest one has sent, with some bytes changed.
                let mut message = self.sent.clone();
                for _ in 0..script.below(4) {
                    if message.is_empty() {
                        break;
                    }
                    let at = script.below(message.len().min(64));
                    message[at] = script.number() as u8;
                }
                message.truncate(message.len() - script.below(3).min(message.len()));
                self.receive(&message);
            }
            8 => self.now += script.pick(&[1, 1_000_000, 4_999_999_999, CONNECT_NS]),
            9 => self.poll(),
            10 => self.partner_asks(script),
            _ => self.partner_answers(script),
        }
        assert!(self.driver.packet_bytes_max() <= 65_535);
    }

    /// The line is up.
    fn up(&mut self, terms: Terms) {
        self.connector.accepted(terms, &mut self.driver);
        self.follow();
    }

    /// The partner takes what the driver may send.
    fn follow(&mut self) {
        self.waiting.clear();
        self.sent.clear();
        match self.driver.terms() {
            Some(terms) => {
                let (send_bytes_max, receive_bytes_max) =
                    (terms.receive_bytes_max, terms.send_bytes_max);
                self.partner.up(Terms { send_bytes_max, receive_bytes_max, ..terms });
            }
            None => self.partner.down(),
        }
    }

    /// Hands a packet to the driver. What it sends is what it got.
    fn hand(&mut self, packet: &[u8]) {
        let is_v4 = packet.first().is_some_and(|first| first >> 4 == 4);
        match self.driver.offer(packet.first().copied().unwrap_or(0), packet.len()) {
            Ok(Offer::Send(framing, bytes)) => {
                let mut message = vec![0; bytes];
                framing.write_one(is_v4, &mut message, |target| target.copy_from_slice(packet));
                self.driver.sent_one(self.now, packet.len());
                self.check_sent(message, &[packet.to_vec()]);
            }
            Ok(Offer::Collect) => {
                self.driver.collect(is_v4, packet.len(), |target| target.copy_from_slice(packet));
                self.waiting.push(packet.to_vec());
            }
            Err(NotTaken::Full) => assert!(self.driver.terms().is_some()),
            Err(NotTaken::Down) => assert!(self.driver.terms().is_none()),
            Err(NotTaken::Unfit { bytes_max }) => {
                let is_ip = packet.first().is_some_and(|first| matches!(first >> 4, 4 | 6));
                assert!(packet.len() > bytes_max || !is_ip);
            }
        }
    }

    fn send_collected(&mut self) {
        let Some(message) = self.driver.collected().map(|message| message.to_vec()) else { return };
        self.driver.sent_collected(self.now, message.len());
        let packets = std::mem::take(&mut self.waiting);
        self.check_sent(message, &packets);
    }

    fn check_sent(&mut self, message: Vec<u8>, packets: &[Vec<u8>]) {
        let terms = self.driver.terms().expect("it has sent");
        assert!(message.len() <= terms.send_bytes_max, "{} in {terms:?}", message.len());
        assert!(take(&mut self.partner, &message) == packets, "what was sent arrives");
        self.sent = message;
    }

    /// The partner sends a message.
    fn receive(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let before = self.driver.counter(Counter::PacketsReceived);
        let packets = take(&mut self.driver, message);
        let counted = self.driver.counter(Counter::PacketsReceived) - before;
        assert_eq!(counted, packets.len() as u64);
        packets
    }

    /// Does what is due: the partner is asked every five seconds at most.
    fn poll(&mut self) {
        let due = self.connector.due();
        match self.connector.poll(self.now, &mut self.driver) {
            None => assert!(due.is_none_or(|due| due > self.now)),
            Some(Act::Withdraw) => assert!(self.connector.due() >= Some(self.now)),
            Some(Act::Connect(data)) => {
                assert!(Greeting::parse(data).is_some_and(|own| own.is_of_line(&self.greeting)));
                let before = self.asked.replace(self.now);
                assert!(before.is_none_or(|before| self.now - before >= CONNECT_NS));
            }
        }
    }

    fn partner_asks(&mut self, script: &mut Script<'_>) {
        let was_up = self.driver.terms().is_some();
        match self.connector.requested(self.now, data(script), &mut self.driver) {
            Answer::Refuse => {}
            Answer::Accept(data, terms) | Answer::AcceptInstead(data, terms) => {
                assert!(!was_up && Greeting::parse(data).is_some());
                self.up(terms);
            }
        }
    }

    fn partner_answers(&mut self, script: &mut Script<'_>) {
        match script.below(3) {
            0 => {
                let was_up = self.driver.terms().is_some();
                let is_up = self.connector.connected(self.now, data(script), &mut self.driver);
                assert!(!(was_up && is_up), "one path is enough");
                if !is_up {
                    return;
                }
            }
            1 => {
                let why = [Unconnected::Absent, Unconnected::Refused, Unconnected::NotAllowed];
                return self.connector.unconnected(self.now, script.pick(&why));
            }
            _ => self.connector.severed(self.now, &mut self.driver),
        }
        self.follow();
    }
}

/// User data of a connection: right, nearly so, or any.
fn data(script: &mut Script<'_>) -> [u8; 16] {
    let wide = script.pick(&[None, Some(65_539), Some(usize::MAX)]);
    let mut data = Greeting::new(None, wide).data();
    if script.below(4) == 0 {
        let at = script.below(data.len());
        data[at] = script.number() as u8;
    }
    data
}

/// Takes the packets out of a message as a stack does: each gets an Ethernet header in front, over what was taken before.
fn take(driver: &mut Driver, message: &[u8]) -> Vec<Vec<u8>> {
    let mut buffer = vec![0; HEADER_BYTES + message.len()];
    buffer[HEADER_BYTES..].copy_from_slice(message);
    let Some(mut walk) = driver.receive(message) else { return Vec::new() };
    let (mut packets, mut end) = (Vec::new(), 0);
    // No packet is empty.
    let mut looks = message.len() + 1;
    while let Some(found) = driver.next_packet(&mut walk, &buffer[HEADER_BYTES..], &mut looks) {
        assert!(found.start >= end && found.end > found.start && found.end <= message.len());
        end = found.end;
        packets.push(message[found.clone()].to_vec());
        let frame = &mut buffer[found.start..found.end + HEADER_BYTES];
        let mac = Mac([2, 0, 0, 0, 0, 0]);
        net::tcpip::address(frame, mac, mac);
        net::tcpip::trust(frame);
    }
    assert!(walk.is_over(), "a message has no more packets than bytes");
    packets
}
