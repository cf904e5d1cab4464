//! Signals that ask a process to end, held back while the process has something to clean up.

use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::ptr;

/// The signals that ask a process to end: Ctrl-C, `kill`, and a terminal that is closed.
const ENDING: [libc::c_int; 3] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP];

/// Holds back the signals that ask a process to end. The descriptor is readable when a signal is waiting.
/// Dropping it delivers the signal, which ends the process unless the process handles the signal.
///
/// Signals are held back from the calling thread alone. The kernel delivers a signal to any other thread, so
/// this is for programs with one thread. A program that is started meanwhile would hold the same signals back
/// for good: start it with [`HeldSignals::spawn`].
#[derive(Debug)]
pub struct HeldSignals {
    signals: OwnedFd,
    before: libc::sigset_t,
    /// The set of blocked signals belongs to the thread.
    _thread: PhantomData<*const ()>,
}

impl HeldSignals {
    /// Holds signals back from now on, except those that the process ignores.
    ///
    /// # Errors
    /// No descriptor or no memory left; nothing is held back then.
    pub fn hold() -> io::Result<HeldSignals> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        // SAFETY: the set is written, and there is room for it.
        unsafe { libc::sigemptyset(set.as_mut_ptr()) };
        // An ignored signal stays pending while it is blocked, and would be taken for one that ends.
        for signal in ENDING.into_iter().filter(|signal| !is_ignored(*signal)) {
            // SAFETY: the set was made empty above, and the number is that of a signal.
            unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
        }
        // SAFETY: made empty above.
        let set = unsafe { set.assume_init() };
        // SAFETY: reads the set, which lives, and touches nothing else.
        let signals = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC) };
        if signals < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor, and no other code knows it.
        let signals = unsafe { OwnedFd::from_raw_fd(signals) };
        let before = change_mask(libc::SIG_BLOCK, &set);
        Ok(HeldSignals { signals, before, _thread: PhantomData })
    }

    /// Starts a program that does not inherit what is held back here.
    ///
    /// # Errors
    /// As from the kernel: there is no such program, or no memory left.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let before = self.before;
        let let_through = move || {
            change_mask(libc::SIG_SETMASK, &before);
            Ok(())
        };
        // SAFETY: the child makes one system call for its own thread; it takes no lock and no memory.
        unsafe { command.pre_exec(let_through) };
        command.spawn()
    }
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
            let mut signal = [0; 128];
            assert_eq!(rustix::io::read(&held, &mut signal).unwrap(), 128);
            assert_eq!(signal[..4], 15_u32.to_ne_bytes());
            assert!(!is_there());
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
    fn ignored_signal_is_told_from_others() {
        // Rust ignores this one in every program.
        assert!(is_ignored(libc::SIGPIPE));
        assert!(!is_ignored(libc::SIGTERM));
    }
}
