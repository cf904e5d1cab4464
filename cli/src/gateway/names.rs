//! Questions after names: those of members are answered here, all others by the resolver of this machine.

use std::fs::File;
use std::io::Read;
use std::net::{IpAddr, SocketAddr};

use siga::Name;

/// The port of the domain name system.
pub const PORT: u16 = 53;

/// Where this machine's resolvers are named.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Bytes of that file that are looked at, and resolvers that are used, as the C library does.
const RESOLVERS_BYTES_MAX: u64 = 1 << 16;
const RESOLVERS_MAX: usize = 3;

/// Bytes of the head of a message (RFC 1035 4.1.1).
const HEAD_BYTES: usize = 12;

const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;

/// Returns true if a message asks something that a resolver answers: a standard query with one question.
pub fn is_query(message: &[u8]) -> bool {
    message.len() > HEAD_BYTES && message[2] & 0xf8 == 0 && message[4..6] == [0, 1]
}

/// A question after the name of one label.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The guest that the name would be of.
    pub guest: Name,
    kind: u16,
    /// Where the question ends in its message.
    end: usize,
}

impl Question {
    /// The question of a message, if it has one, and that asks after a name of one label that could be a guest's.
    pub fn parse(message: &[u8]) -> Option<Question> {
        let rest = message.get(HEAD_BYTES..).filter(|_| is_query(message))?;
        let (length, rest) = rest.split_first()?;
        let (label, rest) = rest.split_at_checked(usize::from(*length))?;
        let [0, kind_high, kind_low, class_high, class_low, ..] = *rest else { return None };
        let label = str::from_utf8(label).ok()?;
        let guest = label.to_ascii_uppercase().parse().ok()?;
        let is_internet = u16::from_be_bytes([class_high, class_low]) == INTERNET;
        let kind = u16::from_be_bytes([kind_high, kind_low]);
        is_internet.then_some(Question { guest, kind, end: HEAD_BYTES + 1 + label.len() + 5 })
    }

    /// The answer to this question in `message`, for a member with these addresses. Nobody may keep it: the next member of this name may have others.
    pub fn answer(&self, message: &[u8], addresses: &[IpAddr]) -> Vec<u8> {
        let of_kind = addresses.iter().filter(|address| match address {
            IpAddr::V4(_) => self.kind == A,
            IpAddr::V6(_) => self.kind == AAAA,
        });
        let records: Vec<IpAddr> = of_kind.copied().collect();
        let mut answer = message[..2].to_vec();
        // An answer with authority, and recursion as it was asked for.
        answer.extend([0x84 | message[2] & 1, 0x80, 0, 1, 0, records.len() as u8, 0, 0, 0, 0]);
        answer.extend(&message[HEAD_BYTES..self.end]);
        for address in records {
            // The name in the question, kind, class, time to live, length.
            answer.extend([0xc0, HEAD_BYTES as u8]);
            answer.extend(self.kind.to_be_bytes());
            answer.extend(INTERNET.to_be_bytes());
            answer.extend([0; 4]);
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            answer.extend((octets.len() as u16).to_be_bytes());
            answer.extend(octets);
        }
        answer
    }
}

/// The resolvers of this machine, as of now, or those that were named.
#[derive(Clone, Debug, Default)]
pub struct Resolvers {
    named: Vec<SocketAddr>,
    /// How many have not answered: the next is asked.
    silent: usize,
    /// The one that has answered last, and when.
    answered: Option<(SocketAddr, u64)>,
}

impl Resolvers {
    pub fn new(named: Vec<SocketAddr>) -> Resolvers {
        Resolvers { named, silent: 0, answered: None }
    }

    /// All of them. The file is read each time: it changes when the machine comes to another network.
    pub fn all(&self) -> Vec<SocketAddr> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        let mut text = String::new();
        let file = File::open(RESOLVERS);
        let read = file.and_then(|file| file.take(RESOLVERS_BYTES_MAX).read_to_string(&mut text));
        if read.is_err() {
            return Vec::new();
        }
        parse(&text)
    }

    /// The one to ask now.
    pub fn current(&self) -> Option<SocketAddr> {
        let all = self.all();
        (!all.is_empty()).then(|| all[self.silent % all.len()])
    }

    /// One has answered.
    pub fn answer(&mut self, resolver: SocketAddr, now: u64) {
        self.answered = Some((resolver, now));
    }

    /// One has not answered what it was asked at `asked_ns`. The next is asked from now on, if that has not begun already, and if nobody
    /// else had an answer meanwhile: one that leaves out some questions is there.
    pub fn fail(&mut self, resolver: SocketAddr, asked_ns: u64) {
        let has_answered = self.answered.is_some_and(|(at, ns)| at == resolver && ns > asked_ns);
        if self.current() == Some(resolver) && !has_answered {
            self.silent = self.silent.wrapping_add(1);
        }
    }
}

fn parse(text: &str) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        words.next().filter(|_| is_server)?.parse().ok()
    });
    servers.take(RESOLVERS_MAX).map(|server: IpAddr| SocketAddr::new(server, PORT)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A question after `web`, kind A, with recursion.
    const WEB: &[u8] =
        b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x00\x00\x01\x00\x01";

    #[test]
    fn question_after_a_member_is_answered() {
        let question = Question::parse(WEB).unwrap();
        assert_eq!(question.guest.as_str(), "WEB");
        let addresses = ["10.1.0.5", "fd00::5"].map(|text| text.parse().unwrap());
        let answer = question.answer(WEB, &addresses);
        let expected =
            b"\x12\x34\x85\x80\x00\x01\x00\x01\x00\x00\x00\x00\x03web\x00\x00\x01\x00\x01\
            \xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04\x0a\x01\x00\x05";
        assert_eq!(answer, expected);
        let mut of_v6 = WEB.to_vec();
        of_v6[18] = 28;
        let answer = Question::parse(&of_v6).unwrap().answer(&of_v6, &addresses);
        assert_eq!((answer[7], answer.len()), (1, 21 + 12 + 16));
        let mut of_mail = WEB.to_vec();
        of_mail[18] = 15;
        let answer = Question::parse(&of_mail).unwrap().answer(&of_mail, &addresses);
        assert_eq!((answer[3], answer[7], answer.len()), (0x80, 0, 21), "it has no such record");
    }

    #[test]
    fn questions_after_other_names_are_not_ours() {
        let longer =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x03web\x02de\x00\x00\x01\x00\x01";
        assert_eq!(Question::parse(longer), None);
        assert_eq!(Question::parse(&WEB[..WEB.len() - 1]), None);
        let mut response = WEB.to_vec();
        response[2] |= 0x80;
        assert_eq!(Question::parse(&response), None);
        let mut two = WEB.to_vec();
        two[5] = 2;
        assert_eq!(Question::parse(&two), None);
    }

    #[test]
    fn resolvers_are_read_as_the_c_library_reads_them() {
        let text = "# nameserver 1.1.1.1\nsearch a.b\nnameserver 192.0.2.1\nnameserver\t2001:db8::1 \n\
                    nameserver x\noptions a\nnameserver 192.0.2.3\nnameserver 192.0.2.4\n";
        let read: Vec<String> = parse(text).iter().map(SocketAddr::to_string).collect();
        assert_eq!(read, ["192.0.2.1:53", "[2001:db8::1]:53", "192.0.2.3:53"]);
    }

    #[test]
    fn resolver_that_is_silent_is_left_once() {
        let [one, two] = ["192.0.2.1:53", "192.0.2.2:53"].map(|at| at.parse().unwrap());
        let mut resolvers = Resolvers::new(vec![one, two]);
        (0..4).for_each(|_| resolvers.fail(one, 5));
        assert_eq!(resolvers.current(), Some(two));
        resolvers.answer(two, 9);
        resolvers.fail(two, 8);
        assert_eq!(resolvers.current(), Some(two), "it has answered meanwhile");
        resolvers.fail(two, 10);
        assert_eq!(resolvers.current(), Some(one));
    }

    #[test]
    fn no_message_is_too_much() {
        for length in 0..WEB.len() {
            assert_eq!(Question::parse(&WEB[..length]), None, "{length}");
        }
        for at in 0..WEB.len() {
            for byte in 0..=u8::MAX {
                let mut message = WEB.to_vec();
                message[at] = byte;
                if let Some(question) = Question::parse(&message) {
                    let answer = question.answer(&message, &[]);
                    assert_eq!(answer[HEAD_BYTES..], message[HEAD_BYTES..question.end]);
                }
            }
        }
    }
}
