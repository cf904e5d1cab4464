//! Doorbells: how one party wakes another that sleeps.
//!
//! A doorbell is a pair of connected sockets, one end for each party. A ring is a byte that is sent without
//! ever waiting: when the peer has not heard earlier rings and there is no room for another, it will wake
//! anyway. The peer can ring, but cannot hear in our place, and cannot keep us from ringing. When it dies the
//! kernel closes its end, which wakes and notifies us even if no other process lives. A descriptor can be
//! passed along with a ring.

#[cfg(loom)]
pub use modelled::Doorbell;
#[cfg(not(loom))]
pub use sockets::{Doorbell, Hearer, Ringer};

use std::time::Duration;

use crate::foreign::Foreign;

/// What became of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rung {
    /// The peer will wake.
    Rung,
    /// Unheard rings fill the line: the peer will wake, or chooses not to.
    Unheard,
    /// The peer is gone.
    Gone,
}

/// How long to listen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Only for what has come already.
    Now,
    /// Until something comes, at most this long.
    For(Duration),
    /// Until something comes, or for about this long, some ticks of the kernel more: for trimming. It takes
    /// one system call, as [`Listen::Forever`] does, and [`Listen::For`] one to wait and one to hear.
    About(Duration),
    /// Until something comes.
    Forever,
}

/// What was heard.
#[derive(Debug, Default)]
pub struct Heard {
    /// Rings, at most [`HEARD_RINGS_MAX`]; zero when the time ran out or a signal came.
    pub rings: usize,
    /// A descriptor the peer passed, with the tag that it gave it. Never more than one at a time.
    pub descriptor: Option<(Foreign, u8)>,
    /// Others came with it, which were refused. No honest peer passes more than one with a ring.
    pub has_others: bool,
    /// A descriptor was passed that this process had no number left for: no fault of the peer's.
    pub lost: bool,
    /// The peer is gone; there will be no more rings.
    pub gone: bool,
}

/// Rings taken off the line at once.
pub const HEARD_RINGS_MAX: usize = 64;

#[cfg(not(loom))]
mod sockets {
    use std::io::{self, IoSlice};
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::io::Errno;
    use rustix::net::sockopt::Timeout;
    use rustix::net::{
        self, AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
        SocketFlags, SocketType, sockopt,
    };

    use super::{HEARD_RINGS_MAX, Heard, Listen, Rung};
    use crate::foreign::{End, Foreign, Received};
    use crate::limit::within;

    /// Our end of a doorbell: what rings the peer's, and what hears ours.
    #[derive(Debug)]
    pub struct Doorbell {
        ringer: Ringer,
        hearer: Hearer,
    }

    impl Doorbell {
        /// Both ends of a new doorbell, to be passed to two parties.
        ///
        /// # Errors
        /// No descriptor or no memory left.
        pub fn ends() -> io::Result<(OwnedFd, OwnedFd)> {
            let (one, other) = net::socketpair(
                AddressFamily::UNIX,
                SocketType::STREAM,
                SocketFlags::CLOEXEC,
                None,
            )?;
            Ok((one, other))
        }

        /// Both ends for two parties in this process.
        ///
        /// # Errors
        /// No descriptor or no memory left.
        pub fn pair() -> io::Result<(Doorbell, Doorbell)> {
            let (one, other) = Doorbell::ends()?;
            Ok((Doorbell::adopt(one)?, Doorbell::adopt(other)?))
        }

        /// Takes over an end that was passed to us.
        ///
        /// # Errors
        /// If it is not a connected local socket of the right type.
        pub fn adopt(end: impl Into<Foreign>) -> io::Result<Doorbell> {
            let end = end.into();
            // The first question is for any descriptor, and no file system is asked.
            let local = sockopt::socket_domain(&end)? == AddressFamily::UNIX;
            if !local || sockopt::socket_type(&end)? != SocketType::STREAM {
                return Err(io::Error::other("the descriptor passed as doorbell is none"));
            }
            // An urgent byte that is left out of line is dropped by the kernel when what follows it is read,
            // and so is a descriptor that came with it: closed in that call, however long it takes.
            sockopt::set_socket_oobinline(&end, true)?;
            let account = end.account();
            let end = Arc::new(End::of(end.adopt()?, account));
            let hearer = Hearer { end: end.clone(), receive_timeout: Mutex::new(None) };
            Ok(Doorbell { ringer: Ringer { end }, hearer })
        }

        /// The two directions of the end, for two owners: each lives and ends by itself.
        pub fn split(self) -> (Ringer, Hearer) {
            (self.ringer, self.hearer)
        }

        /// Wakes the peer. Never waits.
        pub fn ring(&self) -> Rung {
            self.ringer.ring()
        }

        /// Wakes the peer and passes it a descriptor, with a tag for its purpose. Never waits.
        pub fn pass(&self, descriptor: BorrowedFd<'_>, tag: u8) -> Rung {
            self.ringer.pass(descriptor, tag)
        }

        /// Takes rings off the line, waiting for them as long as `listen` allows.
        pub fn hear(&self, listen: Listen) -> Heard {
            self.hearer.hear(listen)
        }

        /// Ends both directions: see [`Ringer::hang_up`] and [`Hearer::hang_up`].
        pub fn hang_up(&self) {
            self.ringer.hang_up();
            self.hearer.hang_up();
        }
    }

    impl AsFd for Doorbell {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.hearer.as_fd()
        }
    }

    /// What rings the peer's doorbell. A clone rings the same.
    #[derive(Clone, Debug)]
    pub struct Ringer {
        end: Arc<End>,
    }

    impl Ringer {
        /// Wakes the peer. Never waits.
        pub fn ring(&self) -> Rung {
            if self.end.in_child() {
                return Rung::Gone;
            }
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rung(net::send(&*self.end, &[0], flags).map(drop))
        }

        /// Wakes the peer and passes it a descriptor, with a tag for its purpose. Never waits.
        pub fn pass(&self, descriptor: BorrowedFd<'_>, tag: u8) -> Rung {
            if self.end.in_child() {
                return Rung::Gone;
            }
            let descriptors = [descriptor];
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
            let mut ancillary = SendAncillaryBuffer::new(&mut space);
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
            assert!(fits, "space for one descriptor holds one descriptor");
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            rung(net::sendmsg(&*self.end, &[IoSlice::new(&[tag])], &mut ancillary, flags).map(drop))
        }

        /// Announces that there will be no more rings: the peer hears, after the last of them, that we are
        /// gone, though other copies of our end live.
        pub fn hang_up(&self) {
            shut_down(&self.end, net::Shutdown::Write);
        }
    }

    /// What hears our doorbell.
    #[derive(Debug)]
    pub struct Hearer {
        end: Arc<End>,
        /// About how long a blocking receive may last, as the socket knows it; `None` is forever.
        receive_timeout: Mutex<Option<Duration>>,
    }

    impl Hearer {
        /// Takes rings off the line, waiting for them as long as `listen` allows. To a forked child, who has
        /// no doorbell, everybody is gone.
        pub fn hear(&self, listen: Listen) -> Heard {
            if self.end.in_child() {
                return Heard { gone: true, ..Heard::default() };
            }
            let mut flags = RecvFlags::empty();
            match listen {
                Listen::Now => flags |= RecvFlags::DONTWAIT,
                Listen::For(time) => {
                    // What the socket itself counts are ticks: 50 us would be 8 ms.
                    let mut polled = [PollFd::new(&*self.end, PollFlags::IN)];
                    match within(Some(time), |time| Ok(poll(&mut polled, time)? > 0)) {
                        Ok(true) => flags |= RecvFlags::DONTWAIT,
                        Ok(false) | Err(_) => return Heard::default(),
                    }
                }
                // Zero would mean forever to the socket.
                Listen::About(time) => {
                    self.set_receive_timeout(Some(time.max(Duration::from_micros(1))))
                }
                Listen::Forever => self.set_receive_timeout(None),
            }
            let mut rings = [0; HEARD_RINGS_MAX];
            let (mut descriptor, mut has_others) = (None, false);
            // All but the first are refused.
            let received = self.end.receive(&mut rings, flags, |passed| {
                has_others |= descriptor.is_some();
                descriptor.get_or_insert(passed);
            });
            match received {
                Ok(Received { bytes, has_lost, .. }) => Heard {
                    rings: bytes,
                    // The kernel ends what it gives out behind the ring that brings a descriptor.
                    descriptor: descriptor.map(|one| (one, rings[bytes.saturating_sub(1)])),
                    has_others,
                    lost: has_lost,
                    gone: bytes == 0,
                },
                Err(Errno::AGAIN | Errno::INTR) => Heard::default(),
                // Reset, or not a socket we can use: either way no ring will come again.
                Err(_) => Heard { gone: true, ..Heard::default() },
            }
        }

        /// Announces that rings will not be heard any more: to the peer that rings we are gone.
        pub fn hang_up(&self) {
            shut_down(&self.end, net::Shutdown::Read);
        }

        fn set_receive_timeout(&self, time: Option<Duration>) {
            let mut set_to = self.receive_timeout.lock().unwrap();
            if *set_to != time {
                let set = |time| sockopt::set_socket_timeout(&*self.end, Timeout::Recv, time);
                // Refused only for times beyond what the kernel counts; forever is near enough.
                *set_to = if set(time).is_ok() { time } else { set(None).ok().and(None) };
            }
        }
    }

    impl AsFd for Hearer {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.end.as_fd()
        }
    }

    fn shut_down(end: &End, how: net::Shutdown) {
        if !end.in_child() {
            // An error means that the peer hung up first.
            let _ = net::shutdown(end, how);
        }
    }

    fn rung(sent: Result<(), Errno>) -> Rung {
        match sent {
            Ok(()) => Rung::Rung,
            Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::INTR | Errno::TOOMANYREFS) => {
                Rung::Unheard
            }
            Err(_) => Rung::Gone,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::storage::{Borrowed, Storage, StorageOptions};

        #[test]
        fn ring_is_heard_once() {
            let (ours, theirs) = Doorbell::pair().unwrap();
            assert_eq!(theirs.hear(Listen::Now).rings, 0);
            assert_eq!(ours.ring(), Rung::Rung);
            assert_eq!(ours.ring(), Rung::Rung);
            assert_eq!(theirs.hear(Listen::Forever).rings, 2);
            for listen in [Listen::For, Listen::About] {
                let nothing = theirs.hear(listen(Duration::from_millis(1)));
                assert!(nothing.rings == 0 && !nothing.gone);
            }
        }

        #[test]
        fn time_that_no_kernel_counts_is_very_long() {
            let (ours, theirs) = Doorbell::pair().unwrap();
            let (ringer, _) = theirs.split();
            for listen in
                [Listen::For(Duration::MAX), Listen::About(Duration::MAX), Listen::Forever]
            {
                // The timeout set before is not the one that holds.
                assert_eq!(ours.hear(Listen::About(Duration::from_millis(1))).rings, 0);
                let hearer = rustix::thread::gettid();
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        while !is_asleep(hearer) {
                            std::thread::yield_now();
                        }
                        ringer.ring();
                    });
                    assert_eq!(ours.hear(listen).rings, 1, "{listen:?}");
                });
            }
        }

        /// Whether the kernel reports that a thread of ours sleeps.
        fn is_asleep(thread: rustix::thread::Pid) -> bool {
            let path = format!("/proc/self/task/{}/stat", thread.as_raw_nonzero());
            let stat = std::fs::read_to_string(path).unwrap();
            let (_, state) = stat.rsplit_once(") ").expect("the name in brackets, then the state");
            state.starts_with('S')
        }

        #[test]
        fn ringing_a_peer_that_does_not_listen_never_waits() {
            let (ours, theirs) = Doorbell::pair().unwrap();
            let rings = (0..).take_while(|_| ours.ring() == Rung::Rung).take(1 << 20).count();
            assert!(rings > 0 && rings < 1 << 20, "the line is bounded");
            assert_eq!(ours.ring(), Rung::Unheard);
            let mut heard = 0;
            while heard < rings {
                let now = theirs.hear(Listen::Now).rings;
                assert!(now > 0 && now <= HEARD_RINGS_MAX);
                heard += now;
            }
            assert_eq!(ours.ring(), Rung::Rung);
        }

        #[test]
        fn death_is_heard_after_the_last_ring() {
            let (ours, theirs) = Doorbell::pair().unwrap();
            ours.ring();
            drop(ours);
            let last = theirs.hear(Listen::Forever);
            assert!(last.rings == 1 && !last.gone);
            assert!(theirs.hear(Listen::Forever).gone);
            assert_eq!(theirs.ring(), Rung::Gone);
        }

        #[test]
        fn hanging_up_is_heard_though_a_copy_of_the_end_lives() {
            let (one, other) = Doorbell::ends().unwrap();
            let copy = one.try_clone().unwrap();
            let (ours, theirs) = (Doorbell::adopt(one).unwrap(), Doorbell::adopt(other).unwrap());
            ours.hang_up();
            assert!(theirs.hear(Listen::Forever).gone);
            drop(copy);
        }

        #[test]
        fn directions_of_an_end_end_one_by_one() {
            let (one, other) = Doorbell::pair().unwrap();
            let ((ring, hear), (far_ring, far_hear)) = (one.split(), other.split());
            ring.ring();
            ring.hang_up();
            assert_eq!(far_hear.hear(Listen::Forever).rings, 1);
            assert!(far_hear.hear(Listen::Forever).gone);
            assert_eq!(far_ring.ring(), Rung::Rung);
            assert_eq!(hear.hear(Listen::Forever).rings, 1);
            hear.hang_up();
            assert_eq!(far_ring.ring(), Rung::Gone);
        }

        #[test]
        fn room_on_the_line_is_no_ring() {
            let (one, other) = Doorbell::pair().unwrap();
            let (ring, hear) = one.split();
            std::thread::scope(|scope| {
                let answered = scope.spawn(move || hear.hear(Listen::Forever));
                for _ in 0..100 {
                    // The kernel notifies the sleeper, which rang, that there is room: it sleeps on.
                    ring.ring();
                    assert_eq!(other.hear(Listen::Forever).rings, 1);
                    assert!(!answered.is_finished());
                }
                other.ring();
                assert_eq!(answered.join().unwrap().rings, 1);
            });
        }

        #[test]
        fn descriptor_arrives_with_its_ring() {
            let (ours, theirs) = Doorbell::pair().unwrap();
            let (mut own, descriptor) =
                Storage::create("test", 4096, StorageOptions::default()).unwrap();
            own.bytes_mut(0, 4).copy_from_slice(b"lent");
            ours.ring();
            assert_eq!(ours.pass(descriptor.as_fd(), 7), Rung::Rung);
            drop(descriptor);
            ours.ring();
            let (descriptor, tag) = loop {
                let heard = theirs.hear(Listen::Now);
                assert!(heard.rings > 0);
                if let Some(descriptor) = heard.descriptor {
                    break descriptor;
                }
            };
            assert_eq!(tag, 7, "not that of a ring before or behind");
            let mut bytes = [0; 4];
            let lent = Borrowed::borrow(descriptor, 4096..=4096).unwrap();
            lent.read(0, &mut bytes).unwrap();
            assert_eq!(&bytes, b"lent");
        }

        #[test]
        fn want_of_memory_is_nobodys_death() {
            for lack in [Errno::NOMEM, Errno::NOBUFS, Errno::TOOMANYREFS] {
                assert_eq!(rung(Err(lack)), Rung::Unheard);
            }
            assert_eq!(rung(Err(Errno::PIPE)), Rung::Gone);
        }

        #[test]
        fn something_else_is_no_doorbell() {
            let (reader, _writer) = std::io::pipe().unwrap();
            assert!(Doorbell::adopt(OwnedFd::from(reader)).is_err());
            let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            assert!(Doorbell::adopt(OwnedFd::from(socket)).is_err());
        }
    }
}

#[cfg(loom)]
#[expect(missing_docs, reason = "the face is that of the sockets")]
mod modelled {
    use super::{Heard, Listen, Rung};
    use crate::sync::{Arc, Condvar, Mutex};

    /// Our end of a doorbell between two model threads.
    #[derive(Debug)]
    pub struct Doorbell {
        ours: Arc<Line>,
        theirs: Arc<Line>,
    }

    #[derive(Debug, Default)]
    struct Line {
        rings: Mutex<usize>,
        rung: Condvar,
    }

    impl Doorbell {
        pub fn pair() -> std::io::Result<(Doorbell, Doorbell)> {
            let (one, other) = (Arc::new(Line::default()), Arc::new(Line::default()));
            let ours = Doorbell { ours: one.clone(), theirs: other.clone() };
            Ok((ours, Doorbell { ours: other, theirs: one }))
        }

        pub fn ring(&self) -> Rung {
            *self.theirs.rings.lock().unwrap() += 1;
            self.theirs.rung.notify_one();
            Rung::Rung
        }

        pub fn hear(&self, listen: Listen) -> Heard {
            let mut rings = self.ours.rings.lock().unwrap();
            while *rings == 0 && listen != Listen::Now {
                rings = self.ours.rung.wait(rings).unwrap();
            }
            Heard { rings: std::mem::take(&mut *rings), ..Heard::default() }
        }
    }
}
