//! Sockets to `.await`. The stack's thread wakes the tasks.

use std::future::poll_fn;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use ::tokio::task::coop::{consume_budget, poll_proceed};
use net::tcpip::Awaited;

use super::core::Core;
use super::shared::check_worker;
use super::stack::{Owner, Stack};
use super::tcp::{TcpListener, TcpStream, when_connected, when_readable, when_writable};
use super::udp::{UdpSocket, copy};
use super::waiting::{Interest, Ticket};

/// A task that waits, until this is dropped.
#[derive(Debug)]
struct Registration {
    owner: Arc<Owner>,
    interest: Interest,
    ticket: Option<Ticket>,
}

impl Registration {
    fn new(owner: &Arc<Owner>, interest: Interest) -> Registration {
        Registration { owner: owner.clone(), interest, ticket: None }
    }

    fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        self.owner.poll_until(self.interest, &mut self.ticket, context, attempt)
    }

    /// Waits until an attempt has a result. A future that is dropped before has done nothing.
    async fn until<R>(
        mut self,
        mut attempt: impl FnMut(&mut Core) -> Option<io::Result<R>>,
    ) -> io::Result<R> {
        // One that always has something leaves other tasks their turn.
        consume_budget().await;
        poll_fn(|context| self.poll(context, &mut attempt)).await
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket.take() {
            self.owner.forget(ticket);
        }
    }
}

/// Checks that the stack has a thread, which tasks need: it drives while they wait.
fn check(owner: &Owner) -> io::Result<()> {
    owner.with(|core| check_worker(core.worker))
}

/// A socket that listens, for tasks.
#[derive(Debug)]
pub struct AsyncTcpListener {
    listener: TcpListener,
}

impl AsyncTcpListener {
    /// A listener for tasks: [`TcpListener::bind`] makes one.
    ///
    /// # Errors
    /// `Unsupported` if its stack has no thread; `ResourceBusy` as [`Stack::poll`].
    pub fn new(listener: TcpListener) -> io::Result<AsyncTcpListener> {
        check(&listener.owner)?;
        Ok(AsyncTcpListener { listener })
    }

    /// The next connection, and the address of its other side. Waits for it. A future that is dropped has accepted nothing.
    ///
    /// # Errors
    /// As [`Stack::poll`].
    pub async fn accept(&self) -> io::Result<(AsyncTcpStream, SocketAddr)> {
        let listener = &self.listener;
        let registration =
            Registration::new(&listener.owner, Interest::One(listener.bound.as_listener()));
        let accepted = registration.until(|core| listener.take_ready(core)).await?;
        let (stream, peer) = listener.accepted(accepted);
        Ok((AsyncTcpStream::new(stream)?, peer))
    }

    /// The listener, for what does not wait.
    pub fn get_ref(&self) -> &TcpListener {
        &self.listener
    }

    /// The listener, for threads.
    pub fn into_inner(self) -> TcpListener {
        self.listener
    }
}

/// A connection, for tasks: read and write it with the traits of tokio. Verbs of other handles of the same connection go on
/// meanwhile.
#[derive(Debug)]
pub struct AsyncTcpStream {
    // Before the stream: who is gone waits for nothing.
    reading: Registration,
    writing: Registration,
    stream: TcpStream,
}

impl AsyncTcpStream {
    /// A connection for tasks.
    ///
    /// # Errors
    /// `Unsupported` if its stack has no thread; `ResourceBusy` as [`Stack::poll`].
    pub fn new(stream: TcpStream) -> io::Result<AsyncTcpStream> {
        check(&stream.owner)?;
        let registration =
            || Registration::new(&stream.owner, Interest::One(Awaited::Connection(stream.id)));
        Ok(AsyncTcpStream { reading: registration(), writing: registration(), stream })
    }

    /// Connects to a listener. Waits until it is there, at most for
    /// [`StackOptions::connect_max`](super::StackOptions::connect_max). A future that is dropped gives the connection up.
    ///
    /// # Errors
    /// As [`TcpStream::connect`] and [`AsyncTcpStream::new`].
    pub async fn connect(stack: &Stack, address: SocketAddr) -> io::Result<AsyncTcpStream> {
        check(&stack.owner)?;
        let stream = TcpStream::start_connecting(stack, address)?;
        stream.set_nonblocking(false)?;
        let registration =
            Registration::new(&stream.owner, Interest::One(Awaited::Connection(stream.id)));
        let id = stream.id;
        registration.until(|core| when_connected(core, id)).await?;
        AsyncTcpStream::new(stream)
    }

    /// Another handle of the same connection: one to read in one task, one to write in another.
    ///
    /// # Errors
    /// As [`TcpStream::try_clone`].
    pub fn try_clone(&self) -> io::Result<AsyncTcpStream> {
        AsyncTcpStream::new(self.stream.try_clone()?)
    }

    /// The connection, for what does not wait.
    pub fn get_ref(&self) -> &TcpStream {
        &self.stream
    }

    /// The connection, for threads.
    pub fn into_inner(self) -> TcpStream {
        self.stream
    }
}

/// Errors are those of [`TcpStream`].
impl AsyncRead for AsyncTcpStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        target: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if target.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let turn = ready!(poll_proceed(context));
        let id = self.stream.id;
        let room = target.initialize_unfilled();
        let read = |core: &mut Core| when_readable(core, id, |core, id| core.net.read(id, room));
        let count = ready!(self.reading.poll(context, read))?;
        turn.made_progress();
        target.advance(count);
        Poll::Ready(Ok(()))
    }
}

/// Errors are those of [`TcpStream`].
impl AsyncWrite for AsyncTcpStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        source: &[u8],
    ) -> Poll<io::Result<usize>> {
        if source.is_empty() {
            return Poll::Ready(Ok(0));
        }
        let turn = ready!(poll_proceed(context));
        let id = self.stream.id;
        let write =
            |core: &mut Core| when_writable(core, id, |core, id| core.net.write(id, source));
        let count = ready!(self.writing.poll(context, write))?;
        turn.made_progress();
        Poll::Ready(Ok(count))
    }

    /// All that was written is on its way already.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.shutdown(Shutdown::Write))
    }
}

/// A socket of datagrams, for tasks.
#[derive(Debug)]
pub struct AsyncUdpSocket {
    socket: UdpSocket,
}

impl AsyncUdpSocket {
    /// A socket for tasks: [`UdpSocket::bind`] makes one.
    ///
    /// # Errors
    /// `Unsupported` if its stack has no thread; `ResourceBusy` as [`Stack::poll`].
    pub fn new(socket: UdpSocket) -> io::Result<AsyncUdpSocket> {
        check(&socket.owner)?;
        Ok(AsyncUdpSocket { socket })
    }

    /// Sends a datagram. Waits while its target is full. A future that is dropped before it is done has sent nothing.
    ///
    /// # Errors
    /// As [`UdpSocket::send_to`].
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        let registration = Registration::new(&self.socket.owner, Interest::All);
        registration.until(|core| self.socket.when_sent(core, data, to)).await
    }

    /// The next datagram, and where it is from. Waits for it. What `target` has no room for is lost. A future that is dropped
    /// before it is done has received nothing.
    ///
    /// # Errors
    /// As [`UdpSocket::recv_from`].
    pub async fn recv_from(&self, target: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let registration =
            Registration::new(&self.socket.owner, Interest::One(self.socket.bound.as_socket()));
        let (source, data) = registration.until(|core| self.socket.when_received(core)).await?;
        Ok((copy(&data, target), source))
    }

    /// The socket, for what does not wait.
    pub fn get_ref(&self) -> &UdpSocket {
        &self.socket
    }

    /// The socket, for threads.
    pub fn into_inner(self) -> UdpSocket {
        self.socket
    }
}
