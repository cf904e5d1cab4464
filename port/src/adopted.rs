//! The processes that a program has started: those that outlive it, and those that outlive its port.

use std::fs;
use std::io;

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal,
    set_child_subreaper, waitpid,
};

/// Has this process become the parent of its descendants whose own parents end, from now on.
///
/// # Errors
/// As from the kernel: none is expected.
pub fn adopt_orphans() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// The numbers of the children of this process that are there still, but for those `known`, which are somebody else's to wait for. Those
/// that have ended are gone after this.
///
/// # Errors
/// `/proc` cannot be read.
pub fn adopted(known: &[u32]) -> io::Result<Vec<u32>> {
    let mut children = children()?;
    children.retain(|child| !known.contains(child));
    children.retain(|child| {
        let number = i32::try_from(*child).ok().and_then(Pid::from_raw);
        // It is a child until it is waited for, so the number is its own.
        number.is_some_and(|number| matches!(waitpid(Some(number), WaitOptions::NOHANG), Ok(None)))
    });
    Ok(children)
}

/// The numbers of the children of this process.
fn children() -> io::Result<Vec<u32>> {
    let own = std::process::id();
    let mut children = Vec::new();
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // One that ends meanwhile is none any more. The name, in brackets, may have any character.
        let Ok(stat) = fs::read(process.path().join("stat")) else { continue };
        let stat = String::from_utf8_lossy(&stat);
        let parent =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_ascii_whitespace().nth(1));
        if parent.and_then(|parent| parent.parse().ok()) == Some(own) {
            children.push(number);
        }
    }
    Ok(children)
}

/// The signals that ask a process to end, and that end it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It may do something before it ends.
    Asked,
    /// At once.
    Killed,
}

/// Sends a signal to a child of this process that was not waited for.
pub fn end_child(child: u32, ending: Ending) {
    if let Some(number) = i32::try_from(child).ok().and_then(Pid::from_raw) {
        let signal = if ending == Ending::Asked { Signal::TERM } else { Signal::KILL };
        // It may have become another user's.
        let _ = kill_process(number, signal);
    }
}

/// The name of the network namespace that a process is in; none if there is no such process, or it may not be asked.
pub fn network_of(process: &str) -> Option<String> {
    let link = fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
    Some(link.to_str()?.to_owned())
}

/// Kills all processes in the network namespace of this name that may be, and returns how many there were.
///
/// # Errors
/// `/proc` cannot be read.
pub fn kill_all_in(network: &str) -> io::Result<usize> {
    let mut found = 0;
    for process in fs::read_dir("/proc")?.filter_map(Result::ok) {
        let name = process.file_name();
        let Some(name) = name.to_str() else { continue };
        let Some(number) = name.parse().ok().and_then(Pid::from_raw) else { continue };
        if network_of(name).as_deref() != Some(network) {
            continue;
        }
        // Looked at once more: the number may have become another process's before the descriptor was there.
        let Ok(process) = pidfd_open(number, PidfdFlags::empty()) else { continue };
        if network_of(name).as_deref() == Some(network)
            && pidfd_send_signal(process, Signal::KILL).is_ok()
        {
            found += 1;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn children_and_networks_are_found() {
        let mut child = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        assert!(children().unwrap().contains(&child.id()));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(network_of("self").is_some_and(|name| name.starts_with("net:[")));
        assert_eq!(kill_all_in("net:[0]").unwrap(), 0);
    }
}
