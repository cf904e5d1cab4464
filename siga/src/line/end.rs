//! One end of a line.

use std::fmt;
use std::io;
use std::net::IpAddr;

use fabric::name::{LanName, Name};
use fabric::path::NO_DATA;
use net::links::{
    CTCM_MTU_MAX, Connector, Counter, Counters, Driver, Greeting, MESSAGES_MAX, MTU,
    NETIUCV_BYTES_MAX, State, Terms, WIDE_MTU_MAX, is_of_end, mtu_min,
};
use net::tcpip::Prefix;
use os::processor::now_ns;

use super::adapter::Adapter;
use super::connecting::Requests;
use super::packets::Message;
use super::showing::Showing;
use super::waits::{Joined, Occupant};
use crate::guest::Guest;
use crate::iucv::{IucvPath, Options};
use crate::waiter::{Key, Waiter};
use crate::waiting::Wait;

/// Messages of the greatest length that a path may lend at once: one under way, and those before that the partner has received and not
/// given back.
const MESSAGES_LENT_MAX: u64 = 4;

/// Bytes of storage that a path may lend at least.
const STORAGE_BYTES_MIN: u64 = 4 << 20;

/// Who is at the ends of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineEnd {
    /// The guest at the other end.
    pub partner: Name,
    /// The IP address of this end.
    pub address: IpAddr,
    /// The IP address of the other end, of the same family.
    pub peer_address: IpAddr,
}

/// What carries the packets of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum LineMedium {
    /// A path of IUCV between the two guests.
    #[default]
    Iucv,
    /// A virtual channel-to-channel adapter, as [`crate::ctc::Server`] serves. Packets lie in blocks as ctcm writes them.
    Ctc {
        /// The guest that serves the line: with a system file [`CTC_SERVER`](super::CTC_SERVER).
        server: Name,
    },
}

/// How a line behaves. All fields have defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineOptions {
    /// What carries the packets: IUCV unless set.
    pub medium: LineMedium,
    /// The name of the line, which both ends must have: none unless set, as with netiucv. The partner's requests for other lines are refused. A
    /// line over an adapter must have one: the server knows the line by it.
    pub name: Option<LanName>,
    /// Bytes of the longest packet: [`MTU`] unless set, [`MTU_MIN`](net::links::MTU_MIN) to [`WIDE_MTU_MAX`], and 1280 at least for IPv6. Above
    /// [`NETIUCV_MTU_MAX`](net::links::NETIUCV_MTU_MAX) the line asks for the wide framing, with which a message has as many bytes, and a
    /// packet 65,535 at most; a partner that has not asked for the same gets 32,764 bytes at most. Over an adapter [`CTCM_MTU_MAX`] at most, and the
    /// same at both ends: a block that is longer than the partner's is cut, and dropped there.
    pub mtu: usize,
    /// How to wait for packets.
    pub wait: Wait,
}

impl Default for LineOptions {
    fn default() -> LineOptions {
        LineOptions { medium: LineMedium::Iucv, name: None, mtu: MTU, wait: Wait::default() }
    }
}

/// Why there is no line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LineError {
    /// Both ends are the same guest.
    #[error("{0} is at both ends of the line: the partner must be another guest")]
    SameGuest(Name),
    /// The addresses of the ends are the same, of two families, or not those of hosts.
    #[error(
        "{address} and {peer_address} are the addresses of the ends: must be two of hosts, of one family"
    )]
    Addresses {
        /// That of this end.
        address: IpAddr,
        /// That of the other.
        peer_address: IpAddr,
    },
    /// The MTU is outside its limits.
    #[error("an MTU of {mtu}: must be {least} to {most}")]
    Mtu {
        /// The MTU.
        mtu: usize,
        /// The least that the addresses allow.
        least: usize,
        /// The greatest that the medium allows.
        most: usize,
    },
    /// A line over an adapter has no name.
    #[error(
        "a line over a channel-to-channel adapter without a name: must have the one under which {server} serves it"
    )]
    NoName {
        /// The guest that serves lines.
        server: Name,
    },
    /// This process lacks descriptors.
    #[error("cannot wait for a line: {0}")]
    Resources(#[from] io::Error),
}

/// One end of a line. Its guest is the line's alone: connections for anything else are refused. The line ends when it is dropped.
pub struct Line {
    pub(super) waiter: Waiter<Occupant>,
    pub(super) guest: Key,
    pub(super) path: Option<Key>,
    pub(super) requests: Requests,
    pub(super) connector: Connector,
    /// Of a line over a channel-to-channel adapter. The connector, which is that of a line over IUCV, is stopped then.
    pub(super) adapter: Option<Adapter>,
    pub(super) driver: Driver,
    pub(super) end: LineEnd,
    options: LineOptions,
    /// A message that was received, behind room for the Ethernet header of its first packet.
    pub(super) received: Vec<u8>,
    /// The message there of which packets are left.
    pub(super) kept: Option<Message>,
    /// When to try again to send what could not be sent.
    pub(super) retry_ns: Option<u64>,
    pub(super) showing: Showing,
    /// The doorbells are to be drained before anything is looked at.
    pub(super) has_slept: bool,
}

impl fmt::Debug for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = formatter.debug_struct("Line");
        fields.field("end", &self.end).field("state", &self.state()).finish_non_exhaustive()
    }
}

impl Line {
    /// Makes a guest one end of a line, and asks the partner for a connection as soon as the line is used.
    ///
    /// # Errors
    /// [`LineError`].
    pub fn new(guest: Guest, end: &LineEnd, options: &LineOptions) -> Result<Line, LineError> {
        let (own, LineEnd { partner, address, peer_address }) = (guest.name(), *end);
        if own == partner {
            return Err(LineError::SameGuest(own));
        }
        let are_fit = address != peer_address
            && address.is_ipv4() == peer_address.is_ipv4()
            && is_of_end(address)
            && is_of_end(peer_address);
        if !are_fit {
            return Err(LineError::Addresses { address, peer_address });
        }
        let (mtu, least) = (options.mtu, mtu_min(address));
        let most = match options.medium {
            LineMedium::Iucv => WIDE_MTU_MAX,
            LineMedium::Ctc { .. } => CTCM_MTU_MAX,
        };
        if !(least..=most).contains(&mtu) {
            return Err(LineError::Mtu { mtu, least, most });
        }
        let now = now_ns();
        let adapter = match (options.medium, options.name) {
            (LineMedium::Iucv, _) => None,
            (LineMedium::Ctc { server }, None) => return Err(LineError::NoName { server }),
            (LineMedium::Ctc { server }, Some(name)) => Some(Adapter::new(server, name, now)),
        };
        let mut waiter = Waiter::new(options.wait)?;
        guest.follow_hosts();
        let guest = waiter.add(Occupant::Guest(Box::new(guest)))?;
        let greeting = Greeting::new(options.name, Connector::wide_bytes_max(mtu));
        // Both ends compare the same two names.
        let mut connector = Connector::new(greeting, own < partner);
        if adapter.is_none() {
            connector.start(now);
        }
        Ok(Line {
            waiter,
            guest,
            path: None,
            requests: Requests::default(),
            connector,
            adapter,
            driver: Driver::new(mtu),
            end: *end,
            options: *options,
            received: Vec::new(),
            kept: None,
            retry_ns: None,
            showing: Showing::new()?,
            has_slept: false,
        })
    }

    /// The guest at this end.
    pub(crate) fn guest(&self) -> &Guest {
        match self.waiter.get(self.guest) {
            Some(Occupant::Guest(guest)) => guest,
            _ => unreachable!("made with a guest"),
        }
    }

    /// Who is at the ends.
    pub fn end(&self) -> &LineEnd {
        &self.end
    }

    /// The name of the line, if it has one.
    pub fn name(&self) -> Option<LanName> {
        self.options.name
    }

    /// The state of the line.
    pub fn state(&self) -> State {
        match &self.adapter {
            Some(adapter) => adapter.channels.state(&self.driver),
            None => self.connector.state(&self.driver),
        }
    }

    /// What the ends have agreed on; none while the line is down.
    pub fn terms(&self) -> Option<Terms> {
        self.driver.terms()
    }

    /// Bytes of the longest packet, as of now.
    pub fn mtu(&self) -> usize {
        self.driver.packet_bytes_max()
    }

    /// What a counter stands at.
    pub fn counter(&self, counter: Counter) -> u64 {
        self.driver.counter(counter)
    }

    /// All counters.
    pub fn counters(&self) -> &Counters {
        self.driver.counters()
    }

    /// The networks that are reached over this line without a route: the other end.
    pub(crate) fn network(&self) -> Option<Prefix> {
        let bits = if self.end.peer_address.is_ipv4() { 32 } else { 128 };
        Prefix::of(self.end.peer_address, bits)
    }

    pub(crate) fn wait_policy(&self) -> Wait {
        self.options.wait
    }

    /// The path, if the line is up, to do something with it.
    pub(super) fn joined(&mut self) -> Option<&mut Joined> {
        match self.waiter.get_mut(self.path?) {
            Some(Occupant::Path(joined)) => Some(joined),
            _ => None,
        }
    }

    /// The terms of a path for this line.
    pub(super) fn path_options(&self) -> Options {
        Options {
            limit: MESSAGES_MAX,
            parameters: false,
            wait: self.options.wait,
            storage_bytes: self.storage_bytes(),
            ..Options::default()
        }
    }

    /// Bytes of storage that the path may lend: a message is half of that at most, and the one before is not retired at once.
    fn storage_bytes(&self) -> u64 {
        let message_bytes =
            Connector::wide_bytes_max(self.options.mtu).unwrap_or(NETIUCV_BYTES_MAX);
        (MESSAGES_LENT_MAX * message_bytes as u64).max(STORAGE_BYTES_MIN)
    }

    /// The path has ended, or is ended now.
    pub(super) fn sever(&mut self, now: u64) {
        if self.adapter.is_some() {
            return self.sever_adapter(now);
        }
        if let Some(Occupant::Path(joined)) =
            self.path.take().and_then(|key| self.waiter.remove(key))
        {
            IucvPath::sever(joined.path, NO_DATA);
        }
        self.retry_ns = None;
        self.connector.severed(now, &mut self.driver);
    }
}

/// The partner learns that the line was ended, and not that its path was lost.
impl Drop for Line {
    fn drop(&mut self) {
        if !self.waiter_in_child() {
            self.halt_adapter();
            self.sever(now_ns());
        }
    }
}
