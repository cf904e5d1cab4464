//! Many connections that one thread serves without waiting at any: it is told which of them have news. Of a stack at an OSA adapter, and of the kernel over veth.
//!
//! Each connection has a token. It is told when the connection may be ready for what it was not ready for before, so whoever hears of it reads and writes until the
//! connection would have to wait.

use std::io;
use std::net::{SocketAddr, TcpStream as KernelStream};
use std::time::Duration;

use host::report::Counts;
use os::poller::Poller;
use siga::osa::{Inbperf, OsaOptions};
use siga::tcpip::{Drive, Links, Routing, Stack, StackOptions, TcpListener, TcpStream};

use super::adapters::{self, ADDRESSES};
use super::dial::{Dials, KernelDials, Receive, StackStream};
use super::network::{interface, sent_by};
use super::path::wait;
use super::tcpip::{BUFFER_BYTES, counts_of_stack, over_memory};
use crate::control::{Control, Order};
use crate::factor::{Level, word};
use crate::fault::{Doing, Fault};
use crate::measure::Window;
use crate::workload::tcp::BACKLOG;

/// How long a party waits for its connections before it looks whether the lab says something.
const SLICE: Duration = Duration::from_millis(1);

/// The type of service whose packets are to come soon (RFC 791: low delay).
const LOW_DELAY: u8 = 0x10;

/// The connections of a party.
pub(crate) trait Watched {
    /// A connection. Its verbs do not wait.
    type Stream: Receive;

    /// Connects to the target, and waits until the connection is there.
    fn connect(&mut self, token: u64) -> Result<Self::Stream, Fault>;

    /// Waits for the next connection of the source.
    fn accept(&mut self, token: u64) -> Result<Self::Stream, Fault>;

    /// The same of a connection whose packets are to go before others.
    fn connect_urgent(&mut self, token: u64) -> Result<Self::Stream, Fault> {
        let stream = self.connect(token)?;
        Self::hurry(&stream).doing("set a type of service")?;
        Ok(stream)
    }

    /// The same of a connection whose packets are to go before others.
    fn accept_urgent(&mut self, token: u64) -> Result<Self::Stream, Fault> {
        let stream = self.accept(token)?;
        Self::hurry(&stream).doing("set a type of service")?;
        Ok(stream)
    }

    /// Says in the packets of a connection that they are to go before others.
    fn hurry(stream: &Self::Stream) -> io::Result<()>;

    /// Adds the tokens of connections with news to `changed`. Waits for some at most so long, and may return before.
    fn wait(&mut self, time: Duration, changed: &mut Vec<u64>) -> Result<(), Fault>;

    /// What was counted so far.
    fn counts(&self) -> Counts;

    /// Says that all is set up, and waits until it is for everybody. News that come meanwhile are added to `changed`.
    ///
    /// # Errors
    /// [`Fault::Orphaned`]; the stack has failed.
    fn ready(&mut self, control: &mut Control, changed: &mut Vec<u64>) -> Result<Window, Fault> {
        control.announce()?;
        loop {
            if let Some(window) = control.window()? {
                return Ok(window);
            }
            self.wait(SLICE, changed)?;
        }
    }
}

/// Connections of a stack of the party's own, at an adapter: that of the source at the first, that of the target at the second.
#[derive(Debug)]
pub(crate) struct AtAdapter {
    stack: Stack,
    /// Of the target.
    listener: Option<TcpListener>,
    /// Where it listens, for the source.
    target: Option<SocketAddr>,
}

impl AtAdapter {
    /// The target's device is as the factor `inbperf` says. That of the source gets its packets at once: it is in the place of many other machines,
    /// whose adapters have nothing to gather.
    pub(crate) fn open(order: &Order, control: &mut Control) -> Result<AtAdapter, Fault> {
        let peer = order.peer.as_ref().expect("source and target are peers");
        let mut options = OsaOptions::default();
        options.wait = wait(order);
        if order.is_source() {
            options.inbperf = Inbperf::Minlatency;
            // What is urgent would wait behind all segments of a long frame.
            options.offloads = !super::has_own_adapter(&order.factors);
        } else {
            options.workload_queues = adapters::has_workload_queues(order);
            let wanted = word(&order.factors, "inbperf");
            let found = Inbperf::ALL.into_iter().find(|inbperf| inbperf.name() == wanted);
            options.inbperf = match options.workload_queues {
                true => Inbperf::Dynamic,
                false => found.unwrap_or_default(),
            };
        }
        let adapter = usize::from(!order.is_source());
        let device = match super::has_own_adapter(&order.factors) {
            false => adapters::device_with(adapter, &options, order)?,
            true => {
                let (cable, moderation) =
                    (adapters::cable_to_peer(order, control)?, adapters::moderation(order));
                adapters::device_of_own(adapter, Box::new(cable), moderation, &options, order)?
            }
        };
        let target = match order.is_source() {
            true => Some(control.note_from(peer)?.parse().doing("read an address")?),
            false => None,
        };
        // The wire loses what finds no room.
        let congestion = StackOptions::default().congestion;
        let options = StackOptions { congestion, ..over_memory(BUFFER_BYTES, Drive::Inline) };
        let links = Links { devices: vec![device], ..Links::default() };
        let stack = Stack::at(links, &Routing::default(), &options);
        let stack = stack.doing("put a stack at an adapter")?;
        let mut own = AtAdapter { stack, listener: None, target };
        if !order.is_source() {
            let at = (ADDRESSES[adapter], 0);
            let listener = TcpListener::bind_with_backlog(&own.stack, at, BACKLOG.into());
            let listener = listener.doing("listen")?;
            control.tell(&listener.local_addr().doing("listen")?.to_string())?;
            own.listener = Some(listener);
        }
        Ok(own)
    }
}

fn watched(stream: TcpStream, token: u64) -> io::Result<StackStream> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    stream.watch(token)?;
    Ok(StackStream { stream, is_in_place: false })
}

impl Watched for AtAdapter {
    type Stream = StackStream;

    fn connect(&mut self, token: u64) -> Result<StackStream, Fault> {
        let target = self.target.expect("only a source connects");
        let stream = TcpStream::connect(&self.stack, target);
        stream.and_then(|stream| watched(stream, token)).doing("connect")
    }

    fn hurry(stream: &StackStream) -> io::Result<()> {
        stream.stream.set_tos(LOW_DELAY)
    }

    fn accept(&mut self, token: u64) -> Result<StackStream, Fault> {
        let listener = self.listener.as_ref().expect("only a target accepts");
        listener.accept().and_then(|(stream, _)| watched(stream, token)).doing("accept")
    }

    fn wait(&mut self, time: Duration, changed: &mut Vec<u64>) -> Result<(), Fault> {
        let waited = if time.is_zero() { self.stack.poll() } else { self.stack.wait(time) };
        waited.doing("wait")?;
        while let Some(token) = self.stack.take_changed().doing("look which have news")? {
            changed.push(token);
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        let mut counts = counts_of_stack(&self.stack);
        let devices = self.stack.devices().unwrap_or_default();
        counts.extend(adapters::counts(&devices));
        counts.extend(adapters::counts_by_input(&devices));
        counts.extend(adapters::counts_of_own(&devices));
        counts
    }
}

/// Connections of the kernel, between two networks that veth joins.
#[derive(Debug)]
pub(crate) struct OverVeth {
    dials: KernelDials,
    poller: Poller,
    interface: &'static str,
}

impl OverVeth {
    pub(crate) fn open(order: &Order, control: &mut Control) -> Result<OverVeth, Fault> {
        // Connecting and accepting wait in any case.
        let mut waiting = order.clone();
        waiting.factors.insert("wait".to_owned(), Level::Word("block".to_owned()));
        let dials = KernelDials::over_veth(&waiting, control)?;
        let poller = Poller::new().doing("make a poller")?;
        Ok(OverVeth { dials, poller, interface: interface(order) })
    }

    fn watch(&self, stream: KernelStream, token: u64) -> io::Result<KernelStream> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.poller.add_edges(&stream, token)?;
        Ok(stream)
    }
}

impl Watched for OverVeth {
    type Stream = KernelStream;

    fn connect(&mut self, token: u64) -> Result<KernelStream, Fault> {
        let stream = self.dials.connect();
        stream.and_then(|stream| self.watch(stream, token)).doing("connect")
    }

    fn hurry(stream: &KernelStream) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_ip_tos(stream, LOW_DELAY)?)
    }

    fn accept(&mut self, token: u64) -> Result<KernelStream, Fault> {
        let stream = self.dials.accept().doing("accept")?.ok_or(Fault::Ended)?;
        self.watch(stream, token).doing("accept")
    }

    fn wait(&mut self, time: Duration, changed: &mut Vec<u64>) -> Result<(), Fault> {
        changed.extend(self.poller.wait(Some(time)).doing("wait")?);
        Ok(())
    }

    fn counts(&self) -> Counts {
        sent_by(self.interface)
    }
}
