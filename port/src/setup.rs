//! What the process inside is to set up: words on its command line, because both processes are one executable.

use std::ffi::{OsStr, OsString};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use net::lan::frame::Mac;

use crate::link::Address;

/// Where the interface is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// In a network that is made for this program, which the process inside becomes.
    Own {
        /// The program and its arguments.
        program: Vec<OsString>,
    },
    /// In the network namespace at this path.
    Existing(PathBuf),
}

/// What the interface leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// A LAN: the names of its members are in the program's hosts file.
    Lan,
    /// The port of an adapter: the groups that the kernel joins are registered there.
    Adapter,
}

impl Network {
    fn word(self) -> &'static str {
        match self {
            Network::Lan => "lan",
            Network::Adapter => "adapter",
        }
    }
}

/// What is set up inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setup {
    /// Where.
    pub place: Place,
    /// What the interface leads to.
    pub network: Network,
    /// What the interface is called.
    pub interface: String,
    /// Its MAC address.
    pub mac: Mac,
    /// Bytes of the longest packet.
    pub mtu: u32,
    /// Its IP addresses.
    pub addresses: Vec<Address>,
    /// Members of the LAN over which packets go to elsewhere: one for each family of addresses at most.
    pub gateways: Vec<IpAddr>,
    /// Who resolves names for the program; as outside, if there is nobody.
    pub resolvers: Vec<IpAddr>,
}

/// Words before those of the place.
const WORDS: usize = 8;

impl Setup {
    /// The words, the first of which is the number of `socket`.
    pub(crate) fn words(&self, socket: BorrowedFd<'_>) -> Vec<OsString> {
        let Setup { place, network, interface, mac, mtu, addresses, gateways, resolvers } = self;
        let address =
            |Address { address, prefix_bits }: &Address| format!("{address}/{prefix_bits}");
        let addresses: Vec<String> = addresses.iter().map(address).collect();
        let list = |addresses: &[IpAddr]| {
            addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(",")
        };
        let mut words: Vec<OsString> = vec![
            socket.as_raw_fd().to_string().into(),
            network.word().into(),
            interface.into(),
            mac.to_string().into(),
            mtu.to_string().into(),
            addresses.join(",").into(),
            list(gateways).into(),
            list(resolvers).into(),
        ];
        match place {
            Place::Own { program } => {
                words.push("run".into());
                words.extend(program.iter().cloned());
            }
            Place::Existing(path) => words.extend(["join".into(), path.into()]),
        }
        words
    }

    /// What the words say, and the number of the socket; none if they are not those of [`Setup::words`].
    pub(crate) fn parse(words: &[OsString]) -> Option<(i32, Setup)> {
        let (first, place) = words.split_at_checked(WORDS)?;
        let first: Vec<&str> = first.iter().map(|word| word.to_str()).collect::<Option<_>>()?;
        let [socket, network, interface, mac, mtu, addresses, gateways, resolvers] = first[..]
        else {
            return None;
        };
        let addresses = addresses.split(',').filter(|address| !address.is_empty());
        let list = |text: &str| -> Option<Vec<IpAddr>> {
            let addresses = text.split(',').filter(|address| !address.is_empty());
            addresses.map(|address| address.parse().ok()).collect()
        };
        let setup = Setup {
            place: match place.split_first()? {
                (kind, program) if kind == "run" && !program.is_empty() => {
                    Place::Own { program: program.to_vec() }
                }
                (kind, [path]) if kind == "join" => Place::Existing(path.into()),
                _ => return None,
            },
            network: [Network::Lan, Network::Adapter]
                .into_iter()
                .find(|one| one.word() == network)?,
            interface: interface.to_owned(),
            mac: mac.parse().ok()?,
            mtu: mtu.parse().ok()?,
            addresses: addresses.map(Address::parse).collect::<Option<_>>()?,
            gateways: list(gateways)?,
            resolvers: list(resolvers)?,
        };
        Some((socket.parse().ok()?, setup))
    }
}

impl Address {
    /// The address in text like `10.1.0.5/24`; none if it is none.
    pub fn parse(text: &str) -> Option<Address> {
        let (address, bits) = text.split_once('/')?;
        let address: IpAddr = address.parse().ok()?;
        let prefix_bits: u8 = bits.parse().ok()?;
        let bits_max = if address.is_ipv4() { 32 } else { 128 };
        (prefix_bits <= bits_max).then_some(Address { address, prefix_bits })
    }
}

/// The process that a path of `/proc` belongs to, as in `/proc/77/ns/net`.
pub(crate) fn process_of(path: &Path) -> Option<u32> {
    let below = path.strip_prefix("/proc").ok()?;
    let number: &OsStr = below.iter().next()?;
    str::from_utf8(number.as_bytes()).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn words_say_what_they_were_made_of() {
        let socket = std::fs::File::open("/dev/null").unwrap();
        let number = socket.as_raw_fd();
        let program = vec!["curl".into(), "--".into(), OsStr::from_bytes(b"\xff").to_owned()];
        let mut setup = Setup {
            place: Place::Own { program },
            network: Network::Lan,
            interface: "hs0".to_owned(),
            mac: Mac([2, 0, 0, 0, 0, 5]),
            mtu: 8192,
            addresses: ["10.1.0.5/24", "fd00::5/64"]
                .map(|text| Address::parse(text).unwrap())
                .into(),
            gateways: ["10.1.0.1", "fd00::1"].map(|text| text.parse().unwrap()).into(),
            resolvers: ["10.1.0.2"].map(|text| text.parse().unwrap()).into(),
        };
        let words = setup.words(socket.as_fd());
        assert_eq!(
            words[1..8],
            [
                "lan",
                "hs0",
                "02:00:00:00:00:05",
                "8192",
                "10.1.0.5/24,fd00::5/64",
                "10.1.0.1,fd00::1",
                "10.1.0.2"
            ]
        );
        assert_eq!(words[8], "run");
        assert_eq!(Setup::parse(&words), Some((number, setup.clone())));
        assert_eq!(Setup::parse(&words[..9]), None, "no program");
        assert_eq!(Setup::parse(&[]), None);
        setup.place = Place::Existing("/proc/77/ns/net".into());
        setup.addresses.clear();
        setup.gateways.clear();
        setup.network = Network::Adapter;
        assert_eq!(Setup::parse(&setup.words(socket.as_fd())), Some((number, setup)));
    }

    #[test]
    fn addresses_have_a_prefix_that_fits() {
        for bad in ["", "10.1.0.5", "10.1.0.5/33", "10.1.0/24", "fd00::5/129", "/24", "10.1.0.5/"] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn namespaces_of_processes_are_told_from_others() {
        assert_eq!(process_of(Path::new("/proc/77/ns/net")), Some(77));
        assert_eq!(process_of(Path::new("/proc/self/ns/net")), None);
        assert_eq!(process_of(Path::new("/run/netns/blue")), None);
    }
}
