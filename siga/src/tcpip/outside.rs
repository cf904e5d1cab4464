//! A member that stands in for hosts elsewhere: the stack of a gateway that carries on by sockets what members send to other networks.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Duration;

use fabric::name::Name;
use net::tcpip::{Counter, Refusal, SendToError, Stray, StrayKind};
use os::processor::now_ns;

use super::lans::Attached;
use super::routing::Routing;
use super::stack::{Drive, Stack, StackOptions};
use super::tcp::TcpStream;
use crate::lan::Lan;

/// A connection that a member asks for. Nothing is acknowledged before [`Outside::accept`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Asked {
    /// The guest that asks. None if it has left meanwhile.
    pub guest: Option<Name>,
    /// Its address.
    pub source: SocketAddr,
    /// The address that it wants to reach.
    pub destination: SocketAddr,
    number: u64,
}

impl Asked {
    fn of_net(&self) -> net::tcpip::Asked {
        let Asked { source: remote, destination: local, number, .. } = *self;
        net::tcpip::Asked { local, remote, number }
    }
}

/// A stack without sockets, which takes what members send to addresses that nobody on the LAN has. The member has to be one that
/// passes packets on ([`LanOptions::routes`](crate::lan::LanOptions::routes)).
///
/// Streams receive nothing by themselves: the program calls [`Outside::poll`], takes what came, and waits for [`Outside::descriptor`] as long as [`Outside::prepare_wait`] says.
#[derive(Clone, Debug)]
pub struct Outside {
    stack: Stack,
}

impl Outside {
    /// Puts the stack on a LAN. It has no thread: it works while one of its verbs runs.
    ///
    /// # Errors
    /// As [`Stack::new`].
    pub fn new(lan: Lan, options: &StackOptions) -> io::Result<Outside> {
        let options = StackOptions { drive: Drive::Inline, ..*options };
        let stack = Stack::put(vec![Attached::of_lan(lan)], &Routing::default(), &options, true)?;
        stack.owner.with(|core| {
            core.is_polled = true;
            Ok(())
        })?;
        Ok(Outside { stack })
    }

    /// The stack, for what all stacks have: addresses, counters, and whether a new host refuses an address. A socket bound at all
    /// addresses takes what is for any host elsewhere.
    pub fn stack(&self) -> &Stack {
        &self.stack
    }

    /// Receives what has come, and sends what is due.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn poll(&self) -> io::Result<()> {
        self.stack.poll()
    }

    /// As [`Stack::descriptor`].
    ///
    /// # Errors
    /// As [`Stack::descriptor`].
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.stack.descriptor()
    }

    /// As [`Stack::prepare_wait`].
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn prepare_wait(&self) -> io::Result<Duration> {
        self.stack.prepare_wait()
    }

    /// As [`Stack::take_changed`].
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_changed(&self) -> io::Result<Option<u64>> {
        self.stack.take_changed()
    }

    /// The next connection that a member asks for. Each is to be answered by [`Outside::accept`] or [`Outside::refuse`]; 4096 wait at most.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_asked(&self) -> io::Result<Option<Asked>> {
        self.stack.owner.with(|core| {
            let Some(asked) = core.own()?.net.take_asked() else { return Ok(None) };
            let net::tcpip::Asked { local: destination, remote: source, number } = asked;
            let guest = core.own()?.guest_at(source.ip());
            Ok(Some(Asked { guest, source, destination, number }))
        })
    }

    /// Accepts a connection: the member is told that it is connected. The stream can be written to once the member has
    /// answered that. None if nobody asks for it any more, the guest that asked has not its address any more, or the stack has as many connections as it may.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn accept(&self, asked: Asked) -> io::Result<Option<TcpStream>> {
        let accepted = self.stack.owner.with(|core| {
            // Whoever has the member's address now has not asked.
            if core.own()?.guest_at(asked.source.ip()) != asked.guest {
                let (net, mut wire) = core.own()?.wired();
                net.refuse_asked(now_ns(), asked.of_net(), None, &mut wire);
                return Ok(None);
            }
            let accepted = core.own()?.net.accept_asked(now_ns(), asked.of_net());
            if let Some(id) = accepted {
                core.held.add(id);
                core.held.get(id).is_nonblocking = true;
                core.push();
            }
            Ok(accepted)
        })?;
        Ok(accepted.map(|id| TcpStream { owner: self.stack.owner.clone(), id }))
    }

    /// Refuses a connection. Without a reason nobody answers the member, which asks again.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn refuse(&self, asked: Asked, refusal: Option<Refusal>) -> io::Result<()> {
        self.stack.owner.with(|core| {
            let (net, mut wire) = core.own()?.wired();
            net.refuse_asked(now_ns(), asked.of_net(), refusal, &mut wire);
            Ok(())
        })
    }

    /// The next datagram or echo request for an address elsewhere, and the guest that sent it, if it is still there. What waits takes 4 MiB at most; more is
    /// dropped and counted.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn take_stray(&self) -> io::Result<Option<(Stray, Option<Name>)>> {
        self.stack.owner.with(|core| {
            let Some(stray) = core.own()?.net.take_stray() else { return Ok(None) };
            let guest = core.own()?.guest_at(stray.source.ip());
            Ok(Some((stray, guest)))
        })
    }

    /// Sends a datagram or an echo reply to a member. `from` is the address elsewhere, `to` the member's with the port, or the
    /// identifier, that the request came from.
    ///
    /// # Errors
    /// `WouldBlock` if the member has no room; `InvalidInput` if the data is too long, or too short for an echo reply; otherwise as [`Stack::poll`].
    pub fn send(
        &self,
        kind: StrayKind,
        (from, to): (SocketAddr, SocketAddr),
        data: &[u8],
    ) -> io::Result<()> {
        self.stack.owner.with(|core| {
            let (net, mut wire) = core.own()?.wired();
            net.send_from_outside(now_ns(), kind, (from, to), data, &mut wire).map_err(|error| {
                match error {
                    SendToError::Full => io::ErrorKind::WouldBlock.into(),
                    _ => io::ErrorKind::InvalidInput.into(),
                }
            })
        })
    }

    /// Tells a member that a datagram or an echo request did not reach its address. `ends` are as with [`Outside::send`].
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn refuse_stray(
        &self,
        kind: StrayKind,
        ends: (SocketAddr, SocketAddr),
        refusal: Refusal,
    ) -> io::Result<()> {
        self.stack.owner.with(|core| {
            let (net, mut wire) = core.own()?.wired();
            net.refuse_stray(now_ns(), kind, ends, refusal, &mut wire);
            Ok(())
        })
    }

    /// The guest that has an address on the LAN now.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn guest_at(&self, address: IpAddr) -> io::Result<Option<Name>> {
        self.stack.owner.with(|core| Ok(core.own()?.guest_at(address)))
    }

    /// The addresses of the guest of this name, in small letters or capital ones: none if it is no member.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn addresses_of(&self, guest: Name) -> io::Result<Vec<IpAddr>> {
        self.stack.owner.with(|core| {
            let Some(lan) = core.own()?.lans.first_mut() else { return Ok(Vec::new()) };
            let mut members = lan.members().filter(|member| member.name == guest);
            Ok(members.next().map(|member| member.addresses.clone()).unwrap_or_default())
        })
    }

    /// Adds to a counter that observers see, of what was carried on.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub fn count(&self, counter: Counter, number: u64) -> io::Result<()> {
        self.stack.owner.with(|core| {
            core.own()?.net.add(counter, number);
            Ok(())
        })
    }
}
