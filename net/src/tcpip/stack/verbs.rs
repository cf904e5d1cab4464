//! Verbs of UDP, and settings of connections.

use super::*;
use crate::tcpip::output::Service;
use crate::tcpip::packet::LENGTH_MAX;
use crate::tcpip::udp::Connected;

impl Stack {
    /// Binds a socket of UDP. The port at which stacks of distributed addresses speak is in use while the stack has a part in one.
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(&mut self, address: SocketAddr) -> Result<SocketAddr, BindError> {
        let address = self.choose_address(address, |stack, address| {
            stack.keeps_port(address.port())
                || Stack::is_in_the_way(address, stack.sockets.bound.keys())
        })?;
        self.sockets.bound.insert(address, Default::default());
        self.are_sockets_unshown = true;
        Ok(address)
    }

    /// Unbinds a socket of UDP. What has come for it is gone.
    pub fn unbind(&mut self, address: SocketAddr) {
        self.sockets.bound.remove(&address);
        self.are_sockets_unshown = true;
    }

    /// Connects a socket of UDP: from now on it has the datagrams of `remote` alone, and is told when they are refused
    /// there. Its own address is returned.
    ///
    /// # Errors
    /// [`SendToError::NoAddress`].
    pub fn connect_socket(
        &mut self,
        address: SocketAddr,
        remote: SocketAddr,
    ) -> Result<SocketAddr, SendToError> {
        let local = self.source_of(address, remote).ok_or(SendToError::NoAddress)?;
        let queue = self.sockets.bound.get_mut(&address).ok_or(SendToError::NoAddress)?;
        queue.connect(Connected { local, remote });
        Ok(SocketAddr::new(local, address.port()))
    }

    /// The other side of a socket of UDP, if it is connected.
    pub fn connected_to(&self, address: SocketAddr) -> Option<SocketAddr> {
        self.sockets.bound.get(&address)?.remote()
    }

    /// Whether the other side of a connected socket has refused a datagram. It is said once.
    pub fn take_refused(&mut self, address: SocketAddr) -> bool {
        self.sockets.bound.get_mut(&address).is_some_and(|queue| queue.take_refused())
    }

    /// The next datagram that has come for a socket, and from where.
    pub fn receive_from(&mut self, address: SocketAddr) -> Option<(SocketAddr, Vec<u8>)> {
        let taken = self.sockets.bound.get_mut(&address)?.take();
        self.are_sockets_unshown |= taken.is_some();
        taken
    }

    /// The next datagram, which stays.
    pub fn peek_from(&self, address: SocketAddr) -> Option<&(SocketAddr, Vec<u8>)> {
        self.sockets.bound.get(&address)?.datagrams.front()
    }

    /// Sends a datagram from a socket, in fragments if it is longer than a frame.
    ///
    /// # Errors
    /// [`SendToError`].
    pub fn send_to(
        &mut self,
        now: u64,
        address: SocketAddr,
        to: SocketAddr,
        data: &[u8],
        link: &mut impl Link,
    ) -> Result<(), SendToError> {
        self.output.clock = self.output.clock.max(now);
        let ip_bytes = if to.is_ipv4() { IPV4_BYTES } else { 0 };
        let bytes_max = LENGTH_MAX - ip_bytes - UDP_BYTES;
        if data.len() > bytes_max {
            return Err(SendToError::TooLong { bytes_max });
        }
        let source = self.source_of(address, to).ok_or(SendToError::NoAddress)?;
        // Bound before the stack had its part: nobody else speaks for it.
        if self.keeps_port(address.port()) {
            return Err(SendToError::NoAddress);
        }
        if let Some(lack) = self.output.lack_to(to.ip(), Service::USUAL) {
            return Err(SendToError::Lacking(lack));
        }
        if self.output.is_full_for_datagrams(to.ip()) {
            return Err(SendToError::Full);
        }
        let frame = packet::datagram(SocketAddr::new(source, address.port()), to, data);
        self.send_in_parts(now, to.ip(), frame, link);
        Ok(())
    }

    /// Sends a datagram to the other side of a connected socket.
    ///
    /// # Errors
    /// [`SendToError`].
    pub fn send_to_connected(
        &mut self,
        now: u64,
        address: SocketAddr,
        data: &[u8],
        link: &mut impl Link,
    ) -> Result<(), SendToError> {
        let to = self.connected_to(address).ok_or(SendToError::NotConnected)?;
        self.send_to(now, address, to, data, link)
    }

    /// The address that datagrams of a socket are from.
    fn source_of(&self, address: SocketAddr, to: SocketAddr) -> Option<IpAddr> {
        if to.port() == 0 || !packet::is_host(to.ip()) {
            return None;
        }
        if let Some(connected) = self.sockets.bound.get(&address).and_then(|queue| queue.connected)
            && connected.remote.ip() == to.ip()
        {
            return Some(connected.local);
        }
        match address.ip().is_unspecified() {
            true => self.source_for(to.ip()).filter(|_| address.is_ipv4() == to.is_ipv4()),
            false => Some(address.ip()).filter(|ip| ip.is_ipv4() == to.is_ipv4()),
        }
    }

    /// Has the other side of a connection asked whether it is there when it is silent, or not any more. One that does not
    /// answer ends the connection with [`End::TimedOut`].
    pub fn set_keep_alive(&mut self, now: u64, id: ConnectionId, options: Option<KeepAlive>) {
        let Some(index) = self.connections.index(id) else { return };
        if let Some(connection) = self.connections.get_mut(index) {
            connection.keeper = options.map(|options| Box::new(Keeper::new(now, options)));
        }
        self.make_busy(index);
    }

    /// Has [`Stack::take_news`] name this when something comes there from now on. It is named once. What has come before is
    /// not named: whoever waits has looked already.
    pub fn await_news(&mut self, awaited: Awaited) {
        let is_awaited = match awaited {
            Awaited::Connection(id) => self.connections.find_mut(id).map(|one| &mut one.is_awaited),
            Awaited::Listener(at) => self.listeners.get_mut(&at).map(|one| &mut one.is_awaited),
            Awaited::Socket(at) => self.sockets.bound.get_mut(&at).map(|one| &mut one.is_awaited),
        };
        if let Some(is_awaited) = is_awaited {
            *is_awaited = true;
        }
    }

    /// Something that was waited for with [`Stack::await_news`], and has come.
    pub fn take_news(&mut self) -> Option<Awaited> {
        self.news.pop()
    }

    /// Whether something about any connection or socket, or the room for a target, has changed since this was asked last.
    pub fn take_moved(&mut self) -> bool {
        std::mem::take(&mut self.has_moved)
    }

    /// Returns true if the other side of a connection has closed its half: what has come, and was not received, is all.
    pub fn has_finished(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some_and(|connection| connection.has_finished)
    }

    /// Whether a connection that was closed still has something to send, or waits until the other side has it.
    pub fn is_closing(&self, id: ConnectionId) -> bool {
        self.connections.find(id).is_some_and(|connection| {
            let waits =
                matches!(connection.state(), State::FinWait1 | State::Closing | State::LastAck);
            let has_reset = connection.state() == State::Closed;
            connection.is_live && (waits || has_reset)
        })
    }
}
