//! A program that this process has started and stands for.

use std::io;
use std::mem::MaybeUninit;
use std::process::Child;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A program that was started.
#[derive(Debug)]
pub struct Program {
    number: Pid,
    /// Once it has ended, its number may be another process's.
    ended: bool,
}

/// What a program did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It ended.
    Ended(End),
    /// A signal of this number stopped it, and it can go on.
    Stopped(i32),
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With this exit code.
    Exit(u8),
    /// By a signal of this number.
    Signal(i32),
}

impl End {
    /// The exit code that a shell has for it: 128 and the number of the signal.
    pub fn exit_code(self) -> u8 {
        match self {
            End::Exit(code) => code,
            End::Signal(number) => 128 + number as u8,
        }
    }
}

impl From<Child> for Program {
    fn from(child: Child) -> Program {
        Program { number: Pid::from_child(&child), ended: false }
    }
}

impl Program {
    /// Its process number.
    pub fn process(&self) -> u32 {
        self.number.as_raw_nonzero().get() as u32
    }

    /// What it has done since the last call, if anything. Does not wait.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn poll(&mut self) -> io::Result<Option<Change>> {
        self.changed(WaitOptions::NOHANG | WaitOptions::UNTRACED)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// As from the kernel: none is expected.
    pub fn wait(&mut self) -> io::Result<End> {
        loop {
            if let Some(Change::Ended(end)) = self.changed(WaitOptions::empty())? {
                return Ok(end);
            }
        }
    }

    /// Sends it a signal; nothing happens if it has ended.
    pub fn send(&self, signal: i32) {
        // SAFETY: the number is one that came as a signal to this process; those of real time have no name.
        let signal = unsafe { Signal::from_raw_unchecked(signal) };
        if !self.ended {
            // The right is there unless the program has become another user's: as for whoever sent it.
            let _ = kill_process(self.number, signal);
        }
    }

    /// Ends it, whatever it does, and waits until it has ended.
    pub fn kill(&mut self) {
        if !self.ended {
            let _ = kill_process(self.number, Signal::KILL);
            let _ = self.wait();
        }
    }

    fn changed(&mut self, options: WaitOptions) -> io::Result<Option<Change>> {
        if self.ended {
            return Ok(None);
        }
        let (_, status) = match waitpid(Some(self.number), options) {
            Ok(Some(changed)) => changed,
            Ok(None) | Err(Errno::INTR) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if let Some(signal) = status.stopping_signal() {
            return Ok(Some(Change::Stopped(signal)));
        }
        let exit = status.exit_status().map(|code| End::Exit(code as u8));
        let end = exit.or(status.terminating_signal().map(End::Signal));
        self.ended = end.is_some();
        Ok(end.map(Change::Ended))
    }
}

/// A child of this process that has ended and was not waited for, by its number; the one that came first, if there are several. It stays
/// to be waited for.
///
/// # Errors
/// As from the kernel: none is expected.
pub fn ended_child() -> io::Result<Option<u32>> {
    let mut found = MaybeUninit::<libc::siginfo_t>::zeroed();
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: changes nothing, and fills in the structure, for which there is room.
    if unsafe { libc::waitid(libc::P_ALL, 0, found.as_mut_ptr(), how) } != 0 {
        let error = io::Error::last_os_error();
        return if error.raw_os_error() == Some(libc::ECHILD) { Ok(None) } else { Err(error) };
    }
    // SAFETY: filled in above, and zeros would be valid too.
    let found = unsafe { found.assume_init() };
    // SAFETY: what is found of a child has this field, and zero in it if there is none.
    let number = unsafe { found.si_pid() };
    Ok(u32::try_from(number).ok().filter(|number| *number != 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn end_is_an_exit_code_as_a_shell_has_it() {
        let run = |script: &str| {
            let child = Command::new("sh").arg("-c").arg(script).spawn().unwrap();
            Program::from(child).wait().unwrap()
        };
        assert_eq!(run("exit 7"), End::Exit(7));
        assert_eq!(run("kill -TERM $$").exit_code(), 143);
        assert_eq!(run("kill -KILL $$"), End::Signal(9));
    }

    #[test]
    fn child_that_has_ended_is_named_until_it_is_waited_for() {
        let mut child = Command::new("true").spawn().unwrap();
        // Children of other tests may end before it.
        while ended_child().unwrap() != Some(child.id()) {
            std::thread::yield_now();
        }
        assert!(child.wait().unwrap().success());
        assert_ne!(ended_child().unwrap(), Some(child.id()));
    }

    #[test]
    fn stop_and_end_are_noticed_once() {
        let child = Command::new("sh").arg("-c").arg("kill -STOP $$; exit 3").spawn().unwrap();
        let mut program = Program::from(child);
        let mut next = || loop {
            if let Some(change) = program.poll().unwrap() {
                break (change, program.send(libc::SIGCONT)).0;
            }
            std::thread::yield_now();
        };
        assert_eq!(next(), Change::Stopped(libc::SIGSTOP));
        assert_eq!(next(), Change::Ended(End::Exit(3)));
        assert_eq!(program.poll().unwrap(), None);
        program.kill();
    }
}
