//! Connections that arrive: accepted, charged to their users, and detached if they do not attach.

use std::collections::VecDeque;
use std::io;

use fabric::control::{Limit, NO_DATA, Owner, Problem, Reply};
use os::doorbell::Listen;
use os::packets::Packets;
use os::peer::{Credentials, Process};
use tracing::field::display;
use tracing::{debug, warn};

use super::accounts::Charge;
use super::{Connection, Door, Host, Order, PAUSE_NS, PROCESS, Role, socket_name};

/// Connections that are taken in before guests have their turn.
const ACCEPTED_PER_TURN: usize = 32;

/// How long a connection may take to attach; one that has sent something and was never read has as long again.
const STRANGER_NS_MAX: u64 = 5_000_000_000;

/// Descriptors that a connection takes: its socket, and its process.
const CONNECTION_DESCRIPTORS: u64 = 2;

/// Memory that a connection takes, by estimate: what is kept of it, and of the paths and resources of its guest.
const CONNECTION_BYTES: u64 = 4096;

impl Host {
    /// Detaches connections that have not attached in time. One that has sent something of which nothing was read yet has more time: its user
    /// may not make another request yet, or the host had much else to do.
    pub(super) fn detach_strangers(&mut self, now_ns: u64) {
        while let Some(&(due_ns, number)) = self.strangers.first()
            && due_ns <= now_ns
        {
            let connection = self.connections.get_mut(&number).expect("a stranger is connected");
            if !connection.is_heard && connection.packets.has_arrived() {
                self.strangers.pop_first();
                connection.due_ns = now_ns + STRANGER_NS_MAX;
                self.strangers.insert((connection.due_ns, number));
            } else {
                self.detach(number, "it did not attach in time");
            }
        }
    }

    /// Takes in those who have connected.
    pub(super) fn accept(&mut self, now_ns: u64) {
        for _ in 0..ACCEPTED_PER_TURN {
            let Some(listener) = &self.listener else { return };
            match listener.accept() {
                Ok(packets) => self.take_in(packets, Door::Socket, now_ns),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => {
                    // No descriptors left, most likely.
                    warn!(%error, "cannot accept a connection");
                    return self.pause_listening(now_ns);
                }
            }
        }
    }

    /// Does not poll the listener for a while, which stays readable.
    pub(super) fn pause_listening(&mut self, now_ns: u64) {
        if let Some(listener) = &self.listener
            && self.poller.remove(listener).is_ok()
        {
            self.paused_until = Some(now_ns + PAUSE_NS);
        }
    }

    /// Takes the orders of other threads of this process, and carries them out.
    pub(super) fn take_orders(&mut self, now_ns: u64) {
        let heard = self.orders_bell.hear(Listen::Now);
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Connect(packets) => self.take_in(packets, Door::Process, now_ns),
                Order::Stop => self.stopped = true,
            }
        }
        if heard.gone {
            // The handle was dropped: no order can come any more.
            let _ = self.poller.remove(&self.orders_bell);
        }
    }

    pub(super) fn take_in(&mut self, packets: Packets, door: Door, now_ns: u64) {
        let credentials = match Credentials::of(&packets) {
            Ok(credentials) => credentials,
            Err(error) => {
                debug!(%error, "a connection ended at once");
                return;
            }
        };
        self.take_in_as(packets, credentials, door, now_ns);
    }

    pub(super) fn take_in_as(
        &mut self,
        mut packets: Packets,
        credentials: Credentials,
        door: Door,
        now_ns: u64,
    ) {
        let user = credentials.user;
        let owner = self.accounts.open(&self.system, &credentials, now_ns);
        packets.charge_to(self.accounts.passed(owner));
        // A process that may connect can pass a descriptor that takes long to close, and connect again.
        let is_let_in = match door {
            Door::Socket => self.accounts.check_refused(owner),
            Door::Process => Ok(()),
        };
        let charged = is_let_in.and_then(|()| self.charge_connection(owner));
        let (stranger, charges) = match charged {
            Ok(charged) => charged,
            Err(problem) => return self.turn_away(&packets, (user, owner), problem, None, now_ns),
        };
        let number = self.next_connection;
        self.next_connection += 1;
        let process = match Process::of_peer(&packets) {
            Ok(process) => Some(process),
            Err(error)
                if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::Unsupported) =>
            {
                None
            }
            Err(error) => {
                let (problem, error) = (Problem::HostResources, Some(&error));
                return self.turn_away(&packets, (user, owner), problem, error, now_ns);
            }
        };
        let added = self.poller.add_arrivals(&packets, socket_name(number)).and_then(|()| {
            process
                .as_ref()
                .map_or(Ok(()), |process| self.poller.add(process, number << 2 | PROCESS))
        });
        if let Err(error) = added {
            // It may be closed only later, and would be readable for as long.
            let _ = self.poller.remove(&packets);
            let (problem, error) = (Problem::HostResources, Some(&error));
            return self.turn_away(&packets, (user, owner), problem, error, now_ns);
        }
        let (role, unsent) = (Role::Stranger, VecDeque::new());
        let due_ns = now_ns + STRANGER_NS_MAX;
        let connection = Connection {
            packets,
            unsent,
            credentials,
            process,
            role,
            due_ns,
            is_heard: false,
            owner,
            stranger: Some(stranger),
            _charges: charges,
        };
        self.connections.insert(number, connection);
        self.strangers.insert((due_ns, number));
    }

    /// Refuses a new connection, with a line in the log now and then: a user can connect as often as the machine lets it. `error` is the kernel's,
    /// if the host lacks something.
    fn turn_away(
        &mut self,
        packets: &Packets,
        (user, owner): (u32, Owner),
        problem: Problem,
        error: Option<&io::Error>,
        now_ns: u64,
    ) {
        if let Some(before) = self.accounts.warn_refused(owner, now_ns) {
            let error = error.map(display);
            warn!(user, %problem, error, before, "a connection is refused");
        }
        // As an answer to nothing, because nothing was asked yet.
        let refused = Reply::Failed { problem, data: NO_DATA };
        let _ = packets.send(&refused.bytes(0), &[]);
    }

    /// Charges a new connection to its user.
    pub(super) fn charge_connection(
        &mut self,
        owner: Owner,
    ) -> Result<(Charge, [Charge; 2]), Problem> {
        let Host { accounts, system, .. } = self;
        let stranger = accounts.charge_stranger(system, owner)?;
        let descriptors =
            accounts.charge(system, owner, Limit::Descriptors, CONNECTION_DESCRIPTORS)?;
        let memory = accounts.charge(system, owner, Limit::Memory, CONNECTION_BYTES)?;
        Ok((stranger, [descriptors, memory]))
    }
}
