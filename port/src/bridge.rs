//! A bridge between a LAN and the port of an adapter: the LAN and the network behind the port are one network of IP.
//!
//! ```text
//!   members of the LAN  <-->  a member of the LAN | packets that wait | a device of layer 3  <-->  the adapter's port
//! ```
//!
//! The bridge goes by addresses of IP. It registers the members' addresses at the port as the members come, so that the adapter answers for
//! them, and takes them back as the members go. On the LAN, an address that no member has is behind the bridge: ports of the LAN send
//! packets for it there ([`find_way`](net::lan::table::LentTable::find_way)). Packets pass as they are. Those that do not pass are counted, by
//! the reason.

mod account;
mod dropped;
mod hosts;
mod packet;
mod queues;

use std::io;
use std::path::Path;
use std::time::Duration;

use net::lan::offload::Offload;
use net::lan::too_long;
use net::tcpip::Unsent;
use os::poller::Poller;
use os::processor::now_ns;
use siga::lan::{Address, JoinLanError, Lan, LanOptions, SendFrameError, TrySendFrameError};
use siga::osa::{OpenOsaError, Osa, OsaChange, OsaOptions, OsaState, Request};
use siga::waiter::Member;
use siga::{AttachError, Guest, Name, Wait};

pub use self::account::Counters;
pub use self::dropped::Dropped;
pub use self::hosts::HOSTS_MAX;

use self::account::Account;
use self::hosts::Hosts;
use self::packet::{admit_in, admit_out, copy, ends, is_too_long};
use self::queues::Queues;
use crate::agent::BATCH;
use crate::backlog::Tried;

/// How long an adaptive bridge looks for packets before it sleeps.
const SPIN_NS: u64 = 50_000;

/// Rounds of a bridge that does not sleep before it looks at its doorbells, too: who comes and goes rings.
const ROUNDS_PER_LOOK: u32 = 64;

/// The longest sleep: members of the LAN change in memory, and nobody is woken for that.
const LOOK_NS: u64 = 200_000_000;

/// What is bridged.
#[derive(Clone, Debug)]
pub struct Options {
    /// The LAN.
    pub lan: String,
    /// The guest that is a member of the LAN. The LAN has to let it pass packets on, from the LAN's networks.
    pub member: Name,
    /// The guest that serves the adapter.
    pub adapter: Name,
    /// The guest that has a device at the adapter.
    pub device: Name,
    /// How the bridge waits.
    pub wait: Wait,
}

/// Why there is no bridge.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// One of the two guests is not attached.
    #[error(transparent)]
    Attach(#[from] AttachError),
    /// The LAN does not take the member.
    #[error(transparent)]
    Join(#[from] JoinLanError),
    /// The adapter cannot be asked for a device.
    #[error(transparent)]
    Device(#[from] OpenOsaError),
    /// The host does not say which networks are bridged.
    #[error(
        "the LAN {lan} lets {member} pass packets on from everywhere: must be from the networks of the LAN (routes_from)"
    )]
    Networks {
        /// The LAN.
        lan: String,
        /// The member.
        member: Name,
    },
    /// No descriptors or no memory left.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A bridge.
#[derive(Debug)]
pub struct Bridge {
    lan: Lan,
    osa: Osa,
    poller: Poller,
    wait: Wait,
    hosts: Hosts,
    /// Packets for the port, by the member that has sent them.
    outbound: Queues,
    /// Packets from the port, by the member that they are for.
    inbound: Queues,
    /// A packet in one piece.
    room: Vec<u8>,
    /// Set if a doorbell may have rung.
    may_have_rung: bool,
    rounds: u32,
    /// Since when nothing was found, for an adaptive bridge.
    idle_since_ns: Option<u64>,
    account: Account,
    told: Told,
}

/// What the user was told, so that it is said once.
#[derive(Debug, Default)]
struct Told {
    is_device_gone: bool,
    is_lan_refused: bool,
    are_hosts_left_out: bool,
}

impl Bridge {
    /// Makes a bridge of two guests of the host that listens at `socket`. The device is there as soon as the adapter is.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn open(socket: &Path, options: &Options) -> Result<Bridge, OpenError> {
        let attach = |name: Name| Guest::attach(socket, name.as_str());
        Bridge::of(attach(options.member)?, attach(options.device)?, options)
    }

    /// Makes a bridge of these two guests, which are those of `options`.
    ///
    /// # Errors
    /// [`OpenError`].
    pub fn of(member: Guest, device: Guest, options: &Options) -> Result<Bridge, OpenError> {
        let Options { lan, member: name, adapter, wait, .. } = options;
        let lan_options =
            LanOptions { address: Address::None, mac: None, routes: true, wait: *wait };
        let lan = Lan::join(member, lan, &lan_options)?;
        if lan.own().routes_from.is_empty() {
            return Err(OpenError::Networks { lan: options.lan.clone(), member: *name });
        }
        let mut osa_options = OsaOptions::default();
        osa_options.wait = *wait;
        let osa = Osa::open(device, adapter.as_str(), &osa_options)?;
        let poller = Poller::new()?;
        poller.add(&lan, 0)?;
        poller.add(&osa, 1)?;
        let account = Account::new(lan.name());
        Ok(Bridge {
            lan,
            osa,
            poller,
            wait: *wait,
            hosts: Hosts::default(),
            outbound: Queues::default(),
            inbound: Queues::default(),
            room: Vec::new(),
            may_have_rung: true,
            rounds: 0,
            idle_since_ns: None,
            account,
            told: Told::default(),
        })
    }

    /// What it has done.
    pub fn counters(&self) -> &Counters {
        &self.account.counters
    }

    /// The device at the port.
    pub fn device(&self) -> &Osa {
        &self.osa
    }

    /// The next message to the user.
    pub fn take_notice(&mut self) -> Option<String> {
        self.account.take_notice()
    }

    /// Carries packets until that time, on the clock that all processes share (`CLOCK_MONOTONIC`, in nanoseconds). Returns earlier if there is a message to the user.
    ///
    /// # Errors
    /// The kernel lets nobody wait; or this is a forked child.
    pub fn serve_until(&mut self, deadline_ns: u64) -> io::Result<()> {
        loop {
            let has_worked = self.poll()?;
            let now = now_ns();
            if now >= deadline_ns || self.account.has_notices() {
                return Ok(());
            }
            if has_worked {
                self.idle_since_ns = None;
            } else if self.is_to_spin(now) {
                os::sync::pause();
            } else if self.prepare_wait(now) {
                let dues = [self.osa.due(), self.hosts.due(), Some(deadline_ns)];
                let due = dues.into_iter().flatten().fold(now + LOOK_NS, u64::min);
                self.poller.wait(Some(Duration::from_nanos(due.saturating_sub(now))))?;
            }
        }
    }

    fn is_to_spin(&mut self, now: u64) -> bool {
        match self.wait {
            Wait::Spin => true,
            Wait::Block => false,
            Wait::Adaptive => now - *self.idle_since_ns.get_or_insert(now) < SPIN_NS,
        }
    }

    fn prepare_wait(&mut self, now: u64) -> bool {
        self.may_have_rung = true;
        // There may have been room for a packet that was looked at before: so it is tried once more.
        !self.retry(now) && self.osa.prepare_wait() && self.lan.prepare_wait()
    }

    /// Carries what there is, without waiting. Returns true if there was something.
    ///
    /// # Errors
    /// As [`Bridge::serve_until`].
    pub fn poll(&mut self) -> io::Result<bool> {
        let now = now_ns();
        self.rounds = self.rounds.wrapping_add(1);
        if std::mem::take(&mut self.may_have_rung) || self.rounds.is_multiple_of(ROUNDS_PER_LOOK) {
            self.lan.hear(0);
            self.osa.drain_doorbells();
        }
        let mut has_worked = self.osa.poll(now)?;
        self.follow_hosts(now);
        has_worked |= self.carry_out(now)?;
        has_worked |= self.carry_in(now);
        // What the adapter says comes between its packets.
        has_worked |= self.osa.poll(now)?;
        self.follow_sides(now);
        has_worked |= self.retry(now);
        self.account.show(&mut self.lan);
        self.lan.flush();
        self.osa.flush();
        Ok(has_worked)
    }

    /// From the LAN to the port. Returns true if there was something.
    fn carry_out(&mut self, now: u64) -> io::Result<bool> {
        let Bridge { lan, osa, hosts, outbound, room, account, .. } = self;
        let mtu = mtu_of(osa);
        for number in 0..BATCH {
            let Some(frame) = lan.try_receive_in_place()? else { return Ok(number > 0) };
            let (offload, bytes) = (frame.offload, frame.bytes());
            let why = match admit_out(&frame, hosts, osa.refused_addresses()) {
                Err(why) => Some(why),
                Ok(_) if let Some(mtu) = mtu.filter(|mtu| is_too_long(offload, bytes, *mtu)) => {
                    copy(&frame, room);
                    account.told_too_long(tell_member(lan, room, mtu));
                    Some(Dropped::Long)
                }
                Ok((from, to)) => {
                    let sent = match outbound.has(from) {
                        true => Err(Unsent::Full),
                        false => osa.send_in_place(now, Some(to), &frame),
                    };
                    match sent {
                        Ok(()) => account.went_out(bytes),
                        Err(Unsent::Full) => copy(&frame, room),
                        Err(_) => {}
                    }
                    match sent {
                        Err(Unsent::Full) if !outbound.keep(from, offload, room) => {
                            Some(Dropped::Full)
                        }
                        sent => not_to_port(sent),
                    }
                }
            };
            if let Some(why) = why {
                account.drop_one(why);
            }
        }
        Ok(true)
    }

    /// From the port to the LAN. Returns true if there was something.
    fn carry_in(&mut self, now: u64) -> bool {
        let Bridge { lan, osa, hosts, inbound, room, account, .. } = self;
        for number in 0..BATCH {
            if osa.next_frame().is_none() {
                return number > 0;
            }
            let Some(frame) = osa.found() else { continue };
            let (offload, mtu) = (frame.offload, lan.mtu() as usize);
            let why = match admit_in(&frame, hosts) {
                Err(why) => Some(why),
                Ok((from, _)) if is_too_long(offload, frame.bytes(), mtu) => {
                    copy(&frame, room);
                    let answer = too_long::answer(room, mtu as u32);
                    let told =
                        answer.map(|answer| osa.send(now, Some(from), Offload::NONE, &answer));
                    account.told_too_long(matches!(told, Some(Ok(()))));
                    Some(Dropped::Long)
                }
                Ok((_, to)) => {
                    copy(&frame, room);
                    room[..6].copy_from_slice(&to.0);
                    room[6..12].copy_from_slice(&lan.mac().0);
                    let sent = match inbound.has(to) {
                        true => Err(TrySendFrameError::Full),
                        false => lan.try_push(offload, room),
                    };
                    match sent {
                        Ok(()) => {
                            account.came_in(room.len());
                            None
                        }
                        Err(TrySendFrameError::Full) if inbound.keep(to, offload, room) => None,
                        Err(error) => Some(not_to_lan(&error)),
                    }
                }
            };
            if let Some(why) = why {
                account.drop_one(why);
            }
        }
        true
    }

    /// Tries the packets again that wait. Returns true if any went.
    fn retry(&mut self, now: u64) -> bool {
        let Bridge { lan, osa, outbound, inbound, account, .. } = self;
        if outbound.is_empty() && inbound.is_empty() {
            return false;
        }
        let drop = |account: &mut Account, why| {
            account.drop_one(why);
            Tried::Done
        };
        let mtu = mtu_of(osa);
        let mut has_worked = outbound.retry(|offload, frame| {
            // The port may have another MTU than when the packet came, or none was known.
            if let Some(mtu) = mtu.filter(|mtu| is_too_long(offload, frame.len(), *mtu)) {
                account.told_too_long(tell_member(lan, frame, mtu));
                return drop(account, Dropped::Long);
            }
            let to = ends(frame).map(|(_, to)| to);
            match osa.send(now, to, offload, frame) {
                Ok(()) => {
                    account.went_out(frame.len());
                    Tried::Done
                }
                Err(Unsent::Full) => Tried::Full,
                sent => drop(account, not_to_port(sent).unwrap_or(Dropped::Unreachable)),
            }
        });
        has_worked |= inbound.retry(|offload, frame| match lan.try_push(offload, frame) {
            Ok(()) => {
                account.came_in(frame.len());
                Tried::Done
            }
            Err(TrySendFrameError::Full) => Tried::Full,
            Err(error) => drop(account, not_to_lan(&error)),
        });
        has_worked
    }

    /// Registers the members that have come, and forgets those that have gone.
    fn follow_hosts(&mut self, now: u64) {
        let Bridge { lan, osa, hosts, outbound, inbound, account, told, .. } = self;
        hosts.ask_again(now, osa);
        if !hosts.follow(lan, osa) {
            return;
        }
        let gone = inbound.retain(|mac| hosts.has(mac)) + outbound.retain(|mac| hosts.has(mac));
        account.drop_some(Dropped::NoMember, gone);
        let left_out = hosts.left_out();
        if left_out > 0 && !std::mem::replace(&mut told.are_hosts_left_out, true) {
            account.tell(format!(
                "the LAN {} has {left_out} addresses more than the bridge registers at {}, which are {HOSTS_MAX} at most: these neither reach the network behind the port nor are reached from there",
                lan.name(),
                osa.adapter()
            ));
        }
    }

    /// Takes note of what the adapter says, and tells the user when the adapter or the LAN goes and comes.
    fn follow_sides(&mut self, now: u64) {
        let Bridge { lan, osa, hosts, account, told, .. } = self;
        let (name, adapter) = (lan.name(), osa.adapter());
        while let Some(change) = osa.next_change() {
            match change {
                OsaChange::Refused(Request::AddAddress(address), why)
                    if hosts.refuse(now, address, why) =>
                {
                    account.tell(format!(
                        "{adapter} refuses {address} of the LAN {name}: {why}; it is asked again, and until then the address neither reaches the network behind the port nor is reached from there"
                    ));
                }
                OsaChange::State(OsaState::Down { why }) => {
                    told.is_device_gone = true;
                    account.tell(format!(
                        "the LAN {name} is not bridged: no device at the adapter {adapter}: {why}; it is asked again"
                    ));
                }
                OsaChange::State(_) if std::mem::take(&mut told.is_device_gone) => {
                    account.tell(format!("the LAN {name} is bridged to {adapter} again"));
                }
                _ => {}
            }
        }
        let refused = lan.refused();
        if let Some(error) = refused
            && !told.is_lan_refused
        {
            account
                .tell(format!("the LAN {name} is not bridged: {error}; the host is asked again"));
        }
        told.is_lan_refused = refused.is_some();
    }
}

/// Bytes of the longest packet of the port. None while there is no device: what the port takes is not known, and a member that was told a shorter length would keep to
/// it for minutes.
fn mtu_of(osa: &Osa) -> Option<usize> {
    match osa.state() {
        OsaState::Up(port) | OsaState::NoCarrier(port) => Some(usize::from(port.mtu)),
        _ => None,
    }
}

/// Tells the member that has sent a frame that packets to the port have at most `mtu` bytes. Returns true if that has gone.
fn tell_member(lan: &mut Lan, frame: &[u8], mtu: usize) -> bool {
    let answer = too_long::answer(frame, mtu as u32);
    answer.is_some_and(|answer| lan.try_push(Offload::NONE, &answer).is_ok())
}

/// The reason why a packet has not gone to the port. None if it has gone, or waits.
fn not_to_port(sent: Result<(), Unsent>) -> Option<Dropped> {
    match sent {
        Ok(()) | Err(Unsent::Full) => None,
        Err(Unsent::Unreachable) => Some(Dropped::Unreachable),
        Err(Unsent::Lacking(_)) => Some(Dropped::Lacking),
    }
}

/// The reason why a packet has not gone to a member, which waits for no room.
fn not_to_lan(error: &TrySendFrameError) -> Dropped {
    match error {
        TrySendFrameError::Full => Dropped::Full,
        TrySendFrameError::Send(SendFrameError::Lacking(_)) => Dropped::Lacking,
        _ => Dropped::Unreachable,
    }
}
