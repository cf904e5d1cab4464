//! A stack of one's own, or a client's side of a machine's: the verbs of both.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::sync::Arc;

use net::tcpip::{
    Awaited, ConnectError, ConnectionId, End, KeepAlive, Readable, SendToError, Writable,
};
use os::processor::now_ns;

use super::client::Client;
use super::failure::{ended, not_bound, not_connected, not_sent};
use super::lans::{LansSleeper, Rang};
use super::own::{Own, Worked};
use crate::waiter::Looked;

/// Pieces that are given to a program at once, at most.
const PIECES_MAX: usize = 16;

pub(super) enum Engine {
    Own(Box<Own>),
    Client(Box<Client>),
}

/// A socket that is being opened.
#[derive(Clone, Copy, Debug)]
pub(super) enum Opening {
    /// It is open, at this address.
    Done(SocketAddr),
    /// The machine was asked: [`Engine::opened`].
    Asked(ConnectionId),
}

/// A listener, or a socket of datagrams, that is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bound {
    pub(super) address: SocketAddr,
    /// What a machine's client calls it. A stack of one's own has one at an address.
    pub(super) id: Option<ConnectionId>,
}

impl Bound {
    /// What those wait for who wait for a connection.
    pub(super) fn as_listener(self) -> Awaited {
        self.id.map_or(Awaited::Listener(self.address), Awaited::Connection)
    }

    /// What those wait for who wait for a datagram.
    pub(super) fn as_socket(self) -> Awaited {
        self.id.map_or(Awaited::Socket(self.address), Awaited::Connection)
    }

    /// What a client calls it.
    fn of_client(self) -> ConnectionId {
        self.id.expect("a client's sockets have one")
    }
}

impl Engine {
    pub(super) fn pump(&mut self, is_wanted: impl Fn() -> bool) -> io::Result<Worked> {
        match self {
            Engine::Own(own) => own.pump(is_wanted),
            Engine::Client(client) => client.pump(is_wanted),
        }
    }

    pub(super) fn push(&mut self) -> Worked {
        match self {
            Engine::Own(own) => own.push(),
            Engine::Client(client) => client.push(),
        }
    }

    /// Shows observers how it stands.
    pub(super) fn show(&mut self, now: u64) {
        if let Engine::Own(own) = self {
            own.show(now);
        }
    }

    /// When something is to be done at the latest, if nothing comes before.
    pub(super) fn due(&self) -> Option<u64> {
        match self {
            Engine::Own(own) => own.due(),
            Engine::Client(client) => client.due(),
        }
    }

    /// As [`Lan::look`](crate::lan::Lan::look).
    pub(super) fn look(
        &mut self,
        deadline_ns: u64,
        is_wanted: impl Fn() -> bool,
    ) -> io::Result<Looked> {
        match self {
            Engine::Own(own) => own.lans.look(deadline_ns, is_wanted),
            Engine::Client(client) => client.look(deadline_ns, is_wanted),
        }
    }

    pub(super) fn prepare_sleep(&mut self) -> Option<u64> {
        match self {
            Engine::Own(own) => own.lans.prepare_sleep(),
            Engine::Client(client) => client.prepare_sleep(),
        }
    }

    pub(super) fn prepare_wait(&mut self) -> bool {
        match self {
            Engine::Own(own) => own.lans.prepare_wait(),
            Engine::Client(client) => client.prepare_wait(),
        }
    }

    pub(super) fn sleeper(&self) -> &Arc<LansSleeper> {
        match self {
            Engine::Own(own) => own.lans.sleeper(),
            Engine::Client(client) => client.sleeper(),
        }
    }

    pub(super) fn heard(&mut self, rang: &Rang, slept_ns: u64) -> bool {
        match self {
            Engine::Own(own) => own.lans.heard(rang, slept_ns),
            Engine::Client(client) => client.heard(rang, slept_ns),
        }
    }

    /// What a counter stands at: zero of a machine, whose counters are its own.
    pub(super) fn counter(&self, counter: net::tcpip::Counter) -> u64 {
        match self {
            Engine::Own(own) => own.net.counter(counter),
            Engine::Client(_) => 0,
        }
    }

    pub(super) fn is_quiet(&self) -> bool {
        match self {
            Engine::Own(own) => own.net.is_quiet(),
            Engine::Client(client) => client.net.is_quiet(),
        }
    }

    pub(super) fn await_news(&mut self, awaited: Awaited) {
        match self {
            Engine::Own(own) => own.net.await_news(awaited),
            Engine::Client(client) => client.net.await_news(awaited),
        }
    }

    pub(super) fn take_news(&mut self) -> Option<Awaited> {
        match self {
            Engine::Own(own) => own.net.take_news(),
            Engine::Client(client) => client.net.take_news(),
        }
    }

    pub(super) fn take_moved(&mut self) -> bool {
        match self {
            Engine::Own(own) => own.net.take_moved(),
            Engine::Client(client) => client.net.take_moved(),
        }
    }

    pub(super) fn watch(&mut self, id: ConnectionId, token: u64) {
        match self {
            Engine::Own(own) => own.net.watch(id, token),
            Engine::Client(client) => client.net.watch(id, token),
        }
    }

    pub(super) fn take_changed(&mut self) -> Option<u64> {
        match self {
            Engine::Own(own) => own.net.take_changed(),
            Engine::Client(client) => client.net.take_changed(),
        }
    }

    pub(super) fn has_changed(&self) -> bool {
        match self {
            Engine::Own(own) => own.net.has_changed(),
            Engine::Client(client) => client.net.has_changed(),
        }
    }

    /// Begins a connection.
    pub(super) fn connect(&mut self, address: SocketAddr) -> io::Result<ConnectionId> {
        match self {
            Engine::Own(own) => {
                own.check_reachable(address.ip())?;
                own.net.connect(now_ns(), address).map_err(not_connected)
            }
            Engine::Client(client) => {
                client.check_there()?;
                client.net.connect(address).ok_or_else(|| not_connected(ConnectError::Full))
            }
        }
    }

    pub(super) fn listen(&mut self, address: SocketAddr, backlog: usize) -> io::Result<Opening> {
        match self {
            Engine::Own(own) => {
                own.net.listen(address, backlog).map(Opening::Done).map_err(not_bound)
            }
            Engine::Client(client) => client.open(|net| net.listen(address, backlog)),
        }
    }

    pub(super) fn bind(&mut self, address: SocketAddr) -> io::Result<Opening> {
        match self {
            Engine::Own(own) => own.net.bind(address).map(Opening::Done).map_err(not_bound),
            Engine::Client(client) => client.open(|net| net.bind(address)),
        }
    }

    /// Begins to connect a socket of datagrams.
    pub(super) fn connect_socket(
        &mut self,
        bound: Bound,
        remote: SocketAddr,
    ) -> io::Result<Opening> {
        match self {
            Engine::Own(own) => {
                own.check_reachable(remote.ip())?;
                let connected = own.net.connect_socket(bound.address, remote);
                connected.map(Opening::Done).map_err(|error| not_sent(error, 0))
            }
            Engine::Client(client) => {
                client.check_known(bound.of_client())?;
                client.open(|net| net.associate(bound.of_client(), remote))
            }
        }
    }

    /// What has become of a socket that the machine was asked for.
    pub(super) fn opened(&mut self, id: ConnectionId) -> Option<io::Result<SocketAddr>> {
        match self {
            Engine::Own(_) => None,
            Engine::Client(client) => client.opened(id),
        }
    }

    /// A socket that the machine was asked for is not wanted any more.
    pub(super) fn give_up_opening(&mut self, id: ConnectionId) {
        if let Engine::Client(client) = self {
            client.give_up_opening(id);
        }
    }

    /// A socket of datagrams that is being connected is not waited for any more.
    pub(super) fn give_up_associating(&mut self, id: ConnectionId) {
        if let Engine::Client(client) = self {
            client.net.give_up_associating(id);
        }
    }

    pub(super) fn accept(
        &mut self,
        bound: Bound,
    ) -> Option<io::Result<(ConnectionId, SocketAddr)>> {
        match self {
            Engine::Own(own) => match own.net.accept(bound.address) {
                Some(accepted) => Some(Ok(accepted)),
                // Nobody comes to an address that is not ours any more.
                None => own.check_own(bound.address.ip()).err().map(Err),
            },
            Engine::Client(client) => match client.net.accept(bound.of_client()) {
                Some(accepted) => Some(Ok(accepted)),
                None => client.check_known(bound.of_client()).err().map(Err),
            },
        }
    }

    pub(super) fn stop_listening(&mut self, bound: Bound) {
        match self {
            Engine::Own(own) => own.net.stop_listening(bound.address),
            Engine::Client(client) => client.stop_listening(bound.of_client()),
        }
    }

    pub(super) fn unbind(&mut self, bound: Bound) {
        match self {
            Engine::Own(own) => own.net.unbind(bound.address),
            Engine::Client(client) => client.net.unbind(bound.of_client()),
        }
    }

    pub(super) fn ends(&self, id: ConnectionId) -> Option<(SocketAddr, SocketAddr)> {
        match self {
            Engine::Own(own) => own.net.ends(id),
            Engine::Client(client) => client.net.ends(id),
        }
    }

    pub(super) fn is_connecting(&self, id: ConnectionId) -> bool {
        match self {
            Engine::Own(own) => own.net.is_connecting(id),
            Engine::Client(client) => client.net.is_connecting(id),
        }
    }

    /// How a connection has failed, if it has. It is said once.
    pub(super) fn take_end(&mut self, id: ConnectionId) -> Option<io::Error> {
        match self {
            Engine::Own(own) => {
                let local = own.net.ends(id).map(|(local, _)| local.ip());
                match own.net.take_end(id)? {
                    End::AddressLost => {
                        // The host may have given it back since.
                        let lost = local.and_then(|local| own.check_own(local).err());
                        Some(lost.unwrap_or(io::ErrorKind::AddrNotAvailable.into()))
                    }
                    end => Some(ended(end)),
                }
            }
            Engine::Client(client) => client.take_end(id),
        }
    }

    pub(super) fn readable(&self, id: ConnectionId) -> Readable {
        match self {
            Engine::Own(own) => own.net.readable(id),
            Engine::Client(client) => client.net.readable(id),
        }
    }

    pub(super) fn writable(&self, id: ConnectionId) -> Writable {
        match self {
            Engine::Own(own) => own.net.writable(id),
            Engine::Client(client) => client.net.writable(id),
        }
    }

    /// Copies what has come into `target`: how many bytes.
    pub(super) fn read(&mut self, id: ConnectionId, target: &mut [u8]) -> usize {
        let own = match self {
            Engine::Own(own) => own,
            Engine::Client(client) => return client.read(id, target),
        };
        let mut count = 0;
        // The bytes lie in several pieces.
        while count < target.len() {
            let taken = own.net.receive_with(id, |bytes| {
                let taken = bytes.len().min(target.len() - count);
                target[count..count + taken].copy_from_slice(&bytes[..taken]);
                (taken, taken)
            });
            match taken {
                Some(taken) if taken > 0 => count += taken,
                _ => break,
            }
        }
        count
    }

    /// Copies as much of `source` as there is room for: how many bytes. None if there is no room, or nothing to copy.
    pub(super) fn write(&mut self, id: ConnectionId, source: &[u8]) -> Option<usize> {
        let own = match self {
            Engine::Own(own) => own,
            Engine::Client(client) => return client.write(id, source),
        };
        let mut count = 0;
        while count < source.len() {
            let put = own.net.send_with(id, |room| {
                let put = room.len().min(source.len() - count);
                room[..put].copy_from_slice(&source[count..count + put]);
                (put, put)
            });
            match put {
                Some(put) if put > 0 => count += put,
                _ => break,
            }
        }
        (count > 0).then_some(count)
    }

    /// Copies what has come, which stays.
    pub(super) fn peek(&self, id: ConnectionId, target: &mut [u8]) -> usize {
        let own = match self {
            Engine::Own(own) => own,
            Engine::Client(client) => return client.net.peek(id, target),
        };
        let mut count = 0;
        for piece in own.net.peek(id) {
            let bytes = piece.len().min(target.len() - count);
            target[count..count + bytes].copy_from_slice(&piece[..bytes]);
            count += bytes;
        }
        count
    }

    pub(super) fn receive_with<R>(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&[u8]) -> (usize, R),
    ) -> Option<R> {
        match self {
            Engine::Own(own) => own.net.receive_with(id, take),
            Engine::Client(client) => client.receive_with(id, take),
        }
    }

    /// Gives all that has come, in at most 16 pieces. `take` returns how many bytes it takes.
    pub(super) fn receive_pieces_with(
        &mut self,
        id: ConnectionId,
        take: impl FnOnce(&[IoSlice<'_>]) -> usize,
    ) -> usize {
        let own = match self {
            Engine::Own(own) => own,
            Engine::Client(client) => {
                let taken = client.receive_with(id, |bytes| {
                    let taken = take(&[IoSlice::new(bytes)]).min(bytes.len());
                    (taken, taken)
                });
                return taken.unwrap_or(0);
            }
        };
        let mut pieces = [IoSlice::new(&[]); PIECES_MAX];
        let mut count = 0;
        for (piece, bytes) in pieces.iter_mut().zip(own.net.peek(id)) {
            *piece = IoSlice::new(bytes);
            count += 1;
        }
        let wanted = take(&pieces[..count]);
        let mut taken = 0;
        while taken < wanted {
            let consumed = own.net.receive_with(id, |bytes| {
                let consumed = bytes.len().min(wanted - taken);
                (consumed, consumed)
            });
            let Some(consumed) = consumed else { break };
            taken += consumed;
        }
        taken
    }

    pub(super) fn send_with<R>(
        &mut self,
        id: ConnectionId,
        fill: impl FnOnce(&mut [u8]) -> (usize, R),
    ) -> Option<R> {
        match self {
            Engine::Own(own) => own.net.send_with(id, fill),
            Engine::Client(client) => client.send_with(id, fill),
        }
    }

    pub(super) fn send_pieces_with(
        &mut self,
        id: ConnectionId,
        bytes_max: usize,
        fill: impl FnOnce(&mut [IoSliceMut<'_>]) -> usize,
    ) -> Option<usize> {
        match self {
            Engine::Own(own) => own.net.send_pieces_with(id, bytes_max, fill),
            Engine::Client(client) => client.send_with(id, |room| {
                let most = room.len().min(bytes_max);
                let filled = fill(&mut [IoSliceMut::new(&mut room[..most])]).min(most);
                (filled, filled)
            }),
        }
    }

    pub(super) fn shut_sending(&mut self, id: ConnectionId) {
        match self {
            Engine::Own(own) => own.net.shut_sending(id),
            Engine::Client(client) => client.net.shut_sending(id),
        }
    }

    pub(super) fn shut_receiving(&mut self, id: ConnectionId) {
        match self {
            Engine::Own(own) => own.net.shut_receiving(id),
            Engine::Client(client) => client.net.shut_receiving(id),
        }
    }

    pub(super) fn set_no_delay(&mut self, id: ConnectionId, is_on: bool) {
        match self {
            Engine::Own(own) => own.net.set_no_delay(id, is_on),
            Engine::Client(client) => client.net.set_no_delay(id, is_on),
        }
    }

    pub(super) fn set_service(&mut self, id: ConnectionId, service: u8) {
        match self {
            Engine::Own(own) => own.net.set_service(id, service),
            Engine::Client(client) => client.net.set_service(id, service),
        }
    }

    pub(super) fn set_keep_alive(&mut self, id: ConnectionId, options: Option<KeepAlive>) {
        match self {
            Engine::Own(own) => own.net.set_keep_alive(now_ns(), id, options),
            Engine::Client(client) => client.net.set_keep_alive(id, options),
        }
    }

    pub(super) fn abort(&mut self, id: ConnectionId) {
        match self {
            Engine::Own(own) => own.net.abort(id),
            Engine::Client(client) => client.net.abort(id),
        }
    }

    pub(super) fn close(&mut self, id: ConnectionId) {
        match self {
            Engine::Own(own) => own.net.close(id),
            Engine::Client(client) => client.close(id),
        }
    }

    pub(super) fn is_closing(&self, id: ConnectionId) -> bool {
        match self {
            Engine::Own(own) => own.net.is_closing(id),
            Engine::Client(client) => client.net.is_closing(id),
        }
    }

    pub(super) fn connected_to(&self, bound: Bound) -> Option<SocketAddr> {
        match self {
            Engine::Own(own) => own.net.connected_to(bound.address),
            Engine::Client(client) => client.net.connected_to(bound.of_client()),
        }
    }

    /// The error of a datagram that was not sent, or that the other side has refused. It is said once.
    pub(super) fn take_refused(&mut self, bound: Bound) -> Option<io::Error> {
        match self {
            Engine::Own(own) => {
                let is_refused = own.net.take_refused(bound.address);
                is_refused.then(|| io::ErrorKind::ConnectionRefused.into())
            }
            Engine::Client(client) => client.take_refused(bound.of_client()),
        }
    }

    /// The next datagram, if there is one, or why there will be none.
    pub(super) fn receive_from(
        &mut self,
        bound: Bound,
    ) -> Option<io::Result<(SocketAddr, Vec<u8>)>> {
        match self {
            Engine::Own(own) => {
                let received = own.net.receive_from(bound.address).map(Ok);
                received.or_else(|| own.check_own(bound.address.ip()).err().map(Err))
            }
            Engine::Client(client) => client.net.receive_from(bound.of_client()).map(Ok),
        }
    }

    pub(super) fn peek_from(&self, bound: Bound) -> Option<&(SocketAddr, Vec<u8>)> {
        match self {
            Engine::Own(own) => own.net.peek_from(bound.address),
            Engine::Client(client) => client.net.peek_from(bound.of_client()),
        }
    }

    /// Sends a datagram. None if there is no room for it now.
    pub(super) fn send_to(
        &mut self,
        from: Bound,
        to: SocketAddr,
        data: &[u8],
    ) -> Option<io::Result<()>> {
        match self {
            Engine::Own(own) => {
                let check =
                    own.check_own(from.address.ip()).and_then(|()| own.check_reachable(to.ip()));
                if let Err(error) = check {
                    return Some(Err(error));
                }
                match own.send_to(from.address, to, data) {
                    Ok(()) => Some(Ok(())),
                    Err(SendToError::Full) => None,
                    Err(error) => Some(Err(not_sent(error, data.len()))),
                }
            }
            Engine::Client(client) => client.send_to(from.of_client(), to, data),
        }
    }
}
