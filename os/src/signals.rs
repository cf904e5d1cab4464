//! Signals held back: those that ask a process to end while it has something to clean up, and all that are to be passed on
//! to another program.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;

use rustix::io::{Errno, FdFlags};

/// The signals that ask a process to end: Ctrl-C, `kill`, and a terminal that is closed.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// The signals that mean something to a program for which this process stands, those of real time aside. Not those of
/// which the process itself is the cause, and not those that cannot be held back.
const PASSED_ON: [libc::c_int; 12] = [
    libc::SIGHUP,
    libc::SIGINT,
    libc::SIGQUIT,
    libc::SIGTERM,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGCONT,
    libc::SIGTSTP,
    libc::SIGWINCH,
    libc::SIGIO,
    libc::SIGPWR,
];

/// Holds back the signals that ask a process to end, or all that it would pass on. The descriptor is readable when a signal
/// is waiting. Dropping it delivers the signal, which ends the process unless the process handles the signal.
///
/// Signals are held back from the calling thread alone, and from threads that it starts afterwards. The kernel delivers a
/// signal to any other thread, so this is for programs with one thread, or for their beginning. A program that is started
/// meanwhile would hold the same signals back for good: start it with [`HeldSignals::spawn`].
#[derive(Debug)]
pub struct HeldSignals {
    signals: OwnedFd,
    before: libc::sigset_t,
    /// Whether the process ignored the ends of its children before.
    ignored_children: bool,
    /// The set of blocked signals belongs to the thread.
    _thread: PhantomData<*const ()>,
}

/// A signal that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its number.
    pub number: i32,
    /// Whether a process sent it to this one, or to its group; otherwise it is the kernel's: a key of the terminal,
    /// which the whole group in the foreground gets, or a child that has changed.
    pub is_sent: bool,
}

impl Taken {
    /// Whether a child has ended, stopped or gone on. One signal can stand for several children.
    pub fn is_of_a_child(self) -> bool {
        self.number == libc::SIGCHLD
    }

    /// Whether it asks a process to end.
    pub fn asks_to_end(self) -> bool {
        ENDING.contains(&self.number) || self.number == libc::SIGQUIT
    }

    /// Whether it asks a process to stop until it is told to go on.
    pub fn asks_to_stop(self) -> bool {
        self.number == libc::SIGTSTP
    }
}

impl HeldSignals {
    /// Holds back the signals that ask to end from now on, except those that the process ignores.
    ///
    /// # Errors
    /// No descriptor or no memory left; nothing is held back then.
    pub fn hold() -> io::Result<HeldSignals> {
        // An ignored signal stays pending while it is blocked, and would be taken for one that ends.
        HeldSignals::hold_these(ENDING.into_iter().filter(|signal| !is_ignored(*signal)))
    }

    /// Holds back all signals that mean something to a program for which this process stands, and the news of its
    /// children. Those that the process ignores come too: the program ignores them as well.
    ///
    /// # Errors
    /// No descriptor or no memory left; nothing is held back then.
    pub fn hold_to_pass_on() -> io::Result<HeldSignals> {
        let of_real_time = libc::SIGRTMIN()..=libc::SIGRTMAX();
        let all = PASSED_ON.into_iter().chain(of_real_time).chain([libc::SIGCHLD]);
        let mut held = HeldSignals::hold_these(all)?;
        // A process that ignores this signal has no news of its children.
        held.ignored_children = is_ignored(libc::SIGCHLD);
        if held.ignored_children {
            set_action(libc::SIGCHLD, libc::SIG_DFL);
        }
        Ok(held)
    }

    fn hold_these(these: impl Iterator<Item = libc::c_int>) -> io::Result<HeldSignals> {
        let set = set_of(these);
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: reads the set, which lives, and touches nothing else.
        let signals = unsafe { libc::signalfd(-1, &raw const set, flags) };
        if signals < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and no other code knows it.
        let signals = unsafe { OwnedFd::from_raw_fd(signals) };
        let before = change_mask(libc::SIG_BLOCK, &set);
        Ok(HeldSignals { signals, before, ignored_children: false, _thread: PhantomData })
    }

    /// Takes a signal that is waiting, if there is one. It is not delivered then.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn take(&self) -> io::Result<Option<Taken>> {
        /// Where in `struct signalfd_siginfo` number and cause are.
        const NUMBER_AT: usize = 0;
        const CAUSE_AT: usize = 8;
        let mut taken = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.signals, &mut taken) {
            Ok(_) => {}
            Err(Errno::AGAIN | Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        let word = |at: usize| {
            i32::from_ne_bytes([taken[at], taken[at + 1], taken[at + 2], taken[at + 3]])
        };
        // The kernel's own causes are positive (siginfo.h), those of processes are not.
        Ok(Some(Taken { number: word(NUMBER_AT), is_sent: word(CAUSE_AT) <= 0 }))
    }

    /// Does to this process what `signal` does to one that neither handles nor holds it back: for those that stop. The
    /// caller goes on when the process does.
    ///
    /// # Errors
    /// As from the kernel: there is no such signal.
    pub fn suffer(&self, signal: i32) -> io::Result<()> {
        // SAFETY: sends a signal to the calling thread, which holds it back, or is stopped by it.
        if unsafe { libc::raise(signal) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let now = change_mask(libc::SIG_UNBLOCK, &set_of([signal].into_iter()));
        change_mask(libc::SIG_SETMASK, &now);
        Ok(())
    }

    /// Starts a program that does not inherit what is held back here.
    ///
    /// # Errors
    /// As from the kernel: there is no such program, or no memory left.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let (before, ignored_children) = (self.before, self.ignored_children);
        let let_through = move || {
            if ignored_children {
                set_action(libc::SIGCHLD, libc::SIG_IGN);
            }
            change_mask(libc::SIG_SETMASK, &before);
            Ok(())
        };
        // SAFETY: the child makes two system calls for its own thread; it takes no lock and no memory.
        unsafe { command.pre_exec(let_through) };
        command.spawn()
    }

    /// As [`HeldSignals::spawn`], and the program has `descriptor` too, under its number here.
    ///
    /// # Errors
    /// As [`HeldSignals::spawn`].
    pub fn spawn_with(
        &self,
        command: &mut Command,
        descriptor: BorrowedFd<'_>,
    ) -> io::Result<Child> {
        let number = descriptor.as_raw_fd();
        let keep = move || {
            // SAFETY: the descriptor is open here, and the child has a copy of it until it executes the program.
            let descriptor = unsafe { BorrowedFd::borrow_raw(number) };
            Ok(rustix::io::fcntl_setfd(descriptor, FdFlags::empty())?)
        };
        // SAFETY: the child makes one system call; it takes no lock and no memory.
        unsafe { command.pre_exec(keep) };
        self.spawn(command)
    }
}

/// Takes over a descriptor that the process which started this one gave with [`HeldSignals::spawn_with`]. A program
/// that this process becomes does not have it.
///
/// # Errors
/// There is no such descriptor.
///
/// # Panics
/// If it is one of the standard descriptors.
pub fn inherited(number: i32) -> io::Result<OwnedFd> {
    assert!(number > 2, "the standard descriptors are the program's");
    // SAFETY: asks about a number; a closed one is an error.
    if unsafe { libc::fcntl(number, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it is open, and came with this process: no code of this process made it, so none owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

impl AsFd for HeldSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.signals.as_fd()
    }
}

impl Drop for HeldSignals {
    fn drop(&mut self) {
        change_mask(libc::SIG_SETMASK, &self.before);
    }
}

fn set_of(signals: impl Iterator<Item = libc::c_int>) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is written, and there is room for it.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    for signal in signals {
        // SAFETY: the set was made empty above; a number that is no signal's is an error, and changes nothing.
        unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    }
    // SAFETY: made empty above.
    unsafe { set.assume_init() }
}

fn set_action(signal: libc::c_int, action: libc::sighandler_t) {
    // SAFETY: neither of the two actions that this is called with runs any code.
    let before = unsafe { libc::signal(signal, action) };
    assert_ne!(before, libc::SIG_ERR, "the action of this signal can be set");
}

/// Changes which signals are blocked for the calling thread, and returns which were blocked before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: reads the one set and fills in the other, for which there is room.
    let result = unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), before.as_mut_ptr()) };
    assert_eq!(result, 0, "a mask can be changed in these ways");
    // SAFETY: filled in above, and zeros would be valid too.
    unsafe { before.assume_init() }
}

fn is_ignored(signal: libc::c_int) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: changes nothing, and fills in the structure, for which there is room.
    let result = unsafe { libc::sigaction(signal, ptr::null(), action.as_mut_ptr()) };
    assert_eq!(result, 0, "the action of a signal can be read");
    // SAFETY: filled in above, and zeros would be valid too.
    let action = unsafe { action.assume_init() };
    action.sa_sigaction == libc::SIG_IGN
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::wait_any;
    use rustix::process::{Pid, Signal};
    use std::os::unix::process::ExitStatusExt;
    use std::time::Duration;

    #[test]
    fn signal_waits_until_it_is_let_through() {
        // A thread of its own: what is held back is held back from the caller.
        let thread = std::thread::spawn(|| {
            let held = HeldSignals::hold().unwrap();
            let is_there = || wait_any([Some(held.as_fd())], Some(Duration::ZERO)).unwrap()[0];
            assert!(!is_there());
            // SAFETY: sends a signal to this thread, which holds it back.
            assert_eq!(unsafe { libc::raise(libc::SIGTERM) }, 0);
            assert!(is_there());
            // Taken here, so that it does not end the tests when it is let through.
            let taken = held.take().unwrap();
            assert_eq!(taken, Some(Taken { number: libc::SIGTERM, is_sent: true }));
            assert!(!is_there() && held.take().unwrap().is_none());
        });
        thread.join().unwrap();
    }

    #[test]
    fn mask_is_afterwards_what_it_was_before() {
        let blocked = || {
            let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
            status.lines().find(|line| line.starts_with("SigBlk")).unwrap().to_owned()
        };
        let before = blocked();
        let held = HeldSignals::hold().unwrap();
        assert_ne!(blocked(), before);
        drop(held);
        assert_eq!(blocked(), before);
    }

    #[test]
    fn program_that_is_started_holds_nothing_back() {
        let held = HeldSignals::hold().unwrap();
        let child = held.spawn(&mut Command::new("true")).unwrap().wait().unwrap();
        assert!(child.success());
        let mut sleeper = held.spawn(Command::new("sleep").arg("1000")).unwrap();
        // Not SIGINT, which a process started in the background ignores.
        rustix::process::kill_process(Pid::from_child(&sleeper), Signal::TERM).unwrap();
        assert_eq!(sleeper.wait().unwrap().signal(), Some(libc::SIGTERM));
    }

    #[test]
    fn program_has_the_descriptor_that_it_was_given_and_no_other() {
        let held = HeldSignals::hold_to_pass_on().unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let mut shell = Command::new("sh");
        let number = writer.as_raw_fd();
        shell.arg("-c").arg(format!("echo here >&{number}; exec ls /proc/self/fd"));
        shell.stdout(std::process::Stdio::piped());
        let child = held.spawn_with(&mut shell, writer.as_fd()).unwrap();
        drop(writer);
        let listed = child.wait_with_output().unwrap().stdout;
        assert_eq!(std::io::read_to_string(reader).unwrap(), "here\n");
        let listed = String::from_utf8(listed).unwrap();
        assert!(listed.lines().any(|line| line == number.to_string()), "{listed}");
        assert!(inherited(1 << 20).is_err());
    }

    #[test]
    fn ignored_signal_is_told_from_others() {
        // Rust ignores this one in every program.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGTERM));
    }
}
