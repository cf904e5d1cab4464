//! The processes that a program has started: those that outlive it, and those that outlive its port.

use std::fs;
use std::io;

use os::program::ended_child;
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

/// The numbers of the children of this process that are still running, but for those `known`, which are somebody else's to wait for. None is
/// left if this is empty.
///
/// # Errors
/// `/proc` cannot be read.
pub fn adopted(known: &[u32]) -> io::Result<Vec<u32>> {
    adopted_of(known, children)
}

/// Waits for the children of this process that have ended, but for those `known`. The kernel names them, and no other process of the
/// machine is looked at, unless one of those `known` has ended before them.
///
/// # Errors
/// `/proc` cannot be read.
pub fn reap(known: &[u32]) -> io::Result<()> {
    while let Some(child) = ended_child()? {
        if known.contains(&child) {
            reap_ended(known, children()?);
            break;
        }
        is_running(child);
    }
    Ok(())
}

/// Returns true if a child of this process is still running. One that has ended is waited for.
pub fn is_running(child: u32) -> bool {
    let number = i32::try_from(child).ok().and_then(Pid::from_raw);
    // It is a child until it is waited for, so the number is its own.
    number.is_some_and(|number| matches!(waitpid(Some(number), WaitOptions::NOHANG), Ok(None)))
}

fn adopted_of(
    known: &[u32],
    mut list: impl FnMut() -> io::Result<Vec<u32>>,
) -> io::Result<Vec<u32>> {
    loop {
        let (running, has_reaped) = reap_ended(known, list()?);
        // A child that ends while `/proc` is read leaves its own children to this process, and they were not listed as such, as
        // when a daemon forks twice.
        if !running.is_empty() || !has_reaped {
            return Ok(running);
        }
    }
}

/// Those of `children` that are still running, without those `known`, and whether others had ended, which are waited for.
fn reap_ended(known: &[u32], mut children: Vec<u32>) -> (Vec<u32>, bool) {
    children.retain(|child| !known.contains(child));
    let listed = children.len();
    children.retain(|child| is_running(*child));
    let has_reaped = children.len() < listed;
    (children, has_reaped)
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

    #[test]
    fn child_that_comes_while_its_parent_ends_is_found() {
        let ended = Command::new("true").spawn().unwrap().id();
        let mut running = Command::new("cat").stdin(std::process::Stdio::piped()).spawn().unwrap();
        // The first was there when the children were listed, and has ended when it is waited for.
        let number = Pid::from_raw(i32::try_from(ended).unwrap()).unwrap();
        let _ = rustix::process::waitid(
            rustix::process::WaitId::Pid(number),
            rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT,
        );
        let mut lists = [vec![ended], vec![running.id()]].into_iter();
        let found = adopted_of(&[], || Ok(lists.next().unwrap_or_default())).unwrap();
        assert_eq!(found, [running.id()]);
        running.kill().unwrap();
        running.wait().unwrap();
    }
}
