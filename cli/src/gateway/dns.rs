//! Questions after names: those of members are answered here, all others by the resolver of this machine.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use siga::Name;

use crate::output::try_say;
use crate::session::{HEAD_BYTES, is_query};

/// The port of the domain name system.
pub const PORT: u16 = 53;

/// Where this machine's resolvers are named.
const RESOLVERS: &str = "/etc/resolv.conf";

/// Bytes of that file that are looked at, and resolvers that are used, as the C library does. Where the file names none, or is not
/// there, it takes the one of this machine.
const RESOLVERS_BYTES_MAX: u64 = 1 << 16;
const RESOLVERS_MAX: usize = 3;
const RESOLVER_HERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), PORT);

/// Bytes of an interface's name.
const INTERFACE_BYTES_MAX: usize = 15;

/// How long what was read of that file counts.
const READ_AGAIN_NS: u64 = Duration::from_secs(1).as_nanos() as u64;

const A: u16 = 1;
const AAAA: u16 = 28;
const INTERNET: u16 = 1;
const NOT_IMPLEMENTED: u8 = 4;

/// Returns the answer to a message that asks for something else than a name, such as a change of names (RFC 1035 4.1.1: not implemented; RFC
/// 2136), or for a whole zone. A resolver on this machine might believe what comes from the machine itself. None if the message asks for nothing, either.
pub fn answer_other(message: &[u8]) -> Option<[u8; HEAD_BYTES]> {
    let head = message.first_chunk::<HEAD_BYTES>().filter(|head| head[2] & 0x80 == 0)?;
    let mut answer = [0; HEAD_BYTES];
    answer[..2].copy_from_slice(&head[..2]);
    // Opcode and recursion as asked for.
    answer[2] = 0x80 | head[2] & 0x79;
    answer[3] = NOT_IMPLEMENTED;
    Some(answer)
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
    /// None until the file could be read.
    all: Option<Vec<SocketAddr>>,
    /// The addresses of the gateway on its LAN, which this machine may be a member of: the gateway would ask itself without end.
    own: Vec<IpAddr>,
    /// True once it was said that one of these is left out.
    has_said: bool,
    /// When the file is read again, if the resolvers are from there: they change when the machine comes to another network.
    read_again_ns: Option<u64>,
    /// How many have not answered, over UDP and over TCP: the next is asked. Many take no questions over TCP.
    silent: [usize; 2],
    /// The one that has answered a datagram last, and when.
    answered: Option<(SocketAddr, u64)>,
}

/// How a resolver is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    Udp,
    Tcp,
}

impl Resolvers {
    /// Those that were named, or those of this machine if none was, for a gateway with these addresses.
    pub fn new(named: Vec<SocketAddr>, own: Vec<IpAddr>) -> Resolvers {
        let (all, read_again_ns) = match named.is_empty() {
            true => (None, Some(0)),
            false => (Some(named), None),
        };
        Resolvers { all, read_again_ns, own, ..Resolvers::default() }
    }

    /// Returns false if the file could not be read yet, for want of descriptors or memory.
    pub fn are_known(&self) -> bool {
        self.all.is_some()
    }

    /// All of them.
    pub fn all(&mut self, now: u64) -> &[SocketAddr] {
        if self.read_again_ns.is_some_and(|again| again <= now) {
            self.read_again_ns = Some(now + READ_AGAIN_NS);
            match read(RESOLVERS) {
                Ok(all) => self.set(all),
                // It names none, for this user.
                Err(error) if !os::socket::is_lack(&error) && self.all.is_none() => {
                    self.set(vec![RESOLVER_HERE])
                }
                // Those count that were there.
                Err(_) => {}
            }
        }
        self.all.as_deref().unwrap_or_default()
    }

    /// Takes those of this machine, but for the gateway itself.
    fn set(&mut self, mut all: Vec<SocketAddr>) {
        let count = all.len();
        all.retain(|at| !self.own.contains(&at.ip().to_canonical()));
        if all.len() < count && !std::mem::replace(&mut self.has_said, true) {
            try_say(format_args!(
                "siga: {RESOLVERS} names this gateway as a resolver, which cannot ask itself: must be another, or --resolver"
            ));
        }
        self.all = Some(all);
    }

    /// The one to ask now.
    pub fn current(&mut self, now: u64, over: Over) -> Option<SocketAddr> {
        self.all(now);
        self.chosen(over)
    }

    fn chosen(&self, over: Over) -> Option<SocketAddr> {
        let all = self.all.as_deref()?;
        all.get(self.silent[over as usize].checked_rem(all.len())?).copied()
    }

    /// One has answered a datagram.
    pub fn answer(&mut self, resolver: SocketAddr, now: u64) {
        self.answered = Some((resolver, now));
    }

    /// One has not answered what it was asked at `asked_ns`. The next is asked from now on, if that has not begun already, and if nobody
    /// else had an answer meanwhile: one that leaves out some questions is there.
    pub fn fail(&mut self, resolver: SocketAddr, over: Over, asked_ns: u64) {
        let has_answered = over == Over::Udp
            && self.answered.is_some_and(|(at, ns)| at == resolver && ns > asked_ns);
        if self.chosen(over) == Some(resolver) && !has_answered {
            let silent = &mut self.silent[over as usize];
            *silent = silent.wrapping_add(1);
        }
    }
}

fn read(path: &str) -> io::Result<Vec<SocketAddr>> {
    let mut text = Vec::new();
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {
            File::open(path)?.take(RESOLVERS_BYTES_MAX).read_to_end(&mut text)?;
        }
        // A pipe would stop everybody until somebody writes to it.
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let mut all = parse(&String::from_utf8_lossy(&text), interface_number);
    if all.is_empty() {
        all.push(RESOLVER_HERE);
    }
    Ok(all)
}

fn parse(text: &str, interface_number: impl Fn(&str) -> Option<u32>) -> Vec<SocketAddr> {
    let servers = text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let is_server = words.next() == Some("nameserver");
        let server = words.next().filter(|_| is_server)?;
        match server.split_once('%') {
            None => {
                let server: IpAddr = server.parse().ok()?;
                let is_local =
                    matches!(server, IpAddr::V6(server) if server.is_unicast_link_local());
                // On which link it is local nobody has said.
                (!is_local).then_some(SocketAddr::new(server, PORT))
            }
            // An address that is local to a link, and the interface there (RFC 4007 11).
            Some((address, interface)) => {
                let number = interface.parse().ok().or_else(|| interface_number(interface))?;
                Some(SocketAddrV6::new(address.parse().ok()?, PORT, 0, number).into())
            }
        }
    });
    servers.take(RESOLVERS_MAX).collect()
}

fn interface_number(name: &str) -> Option<u32> {
    let path = is_interface_name(name).then(|| format!("/sys/class/net/{name}/ifindex"))?;
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Returns true if the kernel lets an interface have this name, so that it leads to no other file.
fn is_interface_name(name: &str) -> bool {
    (1..=INTERFACE_BYTES_MAX).contains(&name.len())
        && !name.contains(['/', ':'])
        && ![".", ".."].contains(&name)
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
                    nameserver x\noptions a\nnameserver fe80::2\nnameserver fe80::1%eth9\nnameserver fe80::1%eth0\n\
                    nameserver 192.0.2.4\n";
        let number = |name: &str| (name == "eth0").then_some(7);
        let read: Vec<String> = parse(text, number).iter().map(SocketAddr::to_string).collect();
        assert_eq!(read, ["192.0.2.1:53", "[2001:db8::1]:53", "[fe80::1%7]:53"]);
        assert_eq!(interface_number("lo"), Some(1));
        assert_eq!(interface_number("../net/lo"), None);
        assert!(is_interface_name("br-0123456789ab") && is_interface_name("..."));
        for other in ["", ".", "..", "../net/lo", "a/b", "br-0123456789abc"] {
            assert!(!is_interface_name(other), "{other:?}");
        }
    }

    #[test]
    fn file_that_would_not_end_names_no_resolver() {
        let path = std::env::temp_dir().join(format!("siga-resolv-{}", std::process::id()));
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let read = read(path.to_str().unwrap());
        fs::remove_file(&path).unwrap();
        assert_eq!(read.unwrap(), [RESOLVER_HERE]);
    }

    #[test]
    fn gateway_does_not_ask_itself() {
        let [own, mapped, other] = ["10.1.255.254:53", "[::ffff:10.1.255.254]:53", "192.0.2.2:53"]
            .map(|at| at.parse().unwrap());
        let mut resolvers = Resolvers::new(Vec::new(), vec!["10.1.255.254".parse().unwrap()]);
        assert!(!resolvers.are_known());
        resolvers.set(vec![mapped, own, other]);
        assert_eq!((resolvers.chosen(Over::Udp), resolvers.has_said), (Some(other), true));
        resolvers.set(vec![own]);
        assert_eq!((resolvers.chosen(Over::Udp), resolvers.are_known()), (None, true));
    }

    #[test]
    fn resolver_that_is_silent_is_left_once() {
        let [one, two] = ["192.0.2.1:53", "192.0.2.2:53"].map(|at| at.parse().unwrap());
        let mut resolvers = Resolvers::new(vec![one, two], Vec::new());
        let fail = |resolvers: &mut Resolvers, at, over, asked_ns| {
            resolvers.fail(at, over, asked_ns);
            [Over::Udp, Over::Tcp].map(|over| resolvers.current(0, over))
        };
        (0..3).for_each(|_| resolvers.fail(one, Over::Udp, 5));
        assert_eq!(fail(&mut resolvers, one, Over::Udp, 5), [Some(two), Some(one)]);
        resolvers.answer(two, 9);
        let found = fail(&mut resolvers, two, Over::Udp, 8);
        assert_eq!(found, [Some(two), Some(one)], "it has answered meanwhile");
        // One that takes no question over TCP is asked by datagrams still, and whatever it answers there.
        assert_eq!(fail(&mut resolvers, one, Over::Tcp, 8), [Some(two), Some(two)]);
        assert_eq!(fail(&mut resolvers, two, Over::Tcp, 8), [Some(two), Some(one)]);
        assert_eq!(fail(&mut resolvers, two, Over::Udp, 10), [Some(one), Some(one)]);
    }

    #[test]
    fn what_is_no_question_after_a_name_is_for_no_resolver() {
        let mut update = WEB.to_vec();
        update[2] = 0x28;
        assert!(!is_query(&update));
        let answer = b"\x12\x34\xa8\x04\0\0\0\0\0\0\0\0";
        assert_eq!(answer_other(&update).as_ref(), Some(answer));
        update[2] |= 0x80;
        assert_eq!(answer_other(&update), None, "an answer is not answered");
        assert_eq!(answer_other(&WEB[..HEAD_BYTES - 1]), None);
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
