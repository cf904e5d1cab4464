//! The place where a host listens.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use os::peer::Credentials;

/// The place where the host of the whole system listens, which `siga.service` starts.
pub const SYSTEM_SOCKET: &str = "/run/siga/siga.sock";

/// Names another place: for guests, and for hosts that are told none.
const VARIABLE: &str = "SIGA_SOCKET";

/// The default place where guests attach: the first of
///
/// 1. what the variable `SIGA_SOCKET` names;
/// 2. [`own_socket`], if a file is there: this user has a host, or had one that was killed;
/// 3. [`SYSTEM_SOCKET`], if a file is there, or if this user may not look into its directory;
/// 4. [`own_socket`], where no host is yet.
///
/// # Errors
/// `NotFound` if neither is there and this user has no directory for a socket.
pub fn default_socket() -> io::Result<PathBuf> {
    choose(named(), own_socket(), Path::new(SYSTEM_SOCKET))
}

/// The default place where a host of this user listens: what the variable `SIGA_SOCKET` names, or else `siga.sock` in
/// `/run` for root, otherwise in `$XDG_RUNTIME_DIR`, or in `/run/user/UID` where that is set up.
///
/// # Errors
/// `NotFound` if there is no such directory.
pub fn own_socket() -> io::Result<PathBuf> {
    if let Some(named) = named() {
        return Ok(named);
    }
    let user = Credentials::own().user;
    let directory = if user == 0 {
        PathBuf::from("/run")
    } else if let Some(directory) = std::env::var_os("XDG_RUNTIME_DIR") {
        PathBuf::from(directory)
    } else {
        PathBuf::from(format!("/run/user/{user}"))
    };
    if !directory.is_dir() {
        let what = format!(
            "no place for the host's socket: {} does not exist; set XDG_RUNTIME_DIR or pass --socket",
            directory.display()
        );
        return Err(io::Error::new(io::ErrorKind::NotFound, what));
    }
    Ok(directory.join("siga.sock"))
}

/// The place that the variable names. An empty variable names none.
fn named() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).filter(|named: &OsString| !named.is_empty()).map(PathBuf::from)
}

fn choose(named: Option<PathBuf>, own: io::Result<PathBuf>, system: &Path) -> io::Result<PathBuf> {
    if let Some(named) = named {
        return Ok(named);
    }
    // Guests of a host that was killed wait for the next one there: they must not wander to a host that others
    // administer. So a socket counts as well when no process listens at it.
    if own.as_ref().is_ok_and(|own| is_there(own)) {
        return own;
    }
    match is_there(system) {
        true => Ok(system.to_owned()),
        false => own,
    }
}

/// Returns true also if this user may not look: then attaching says that permission is denied.
fn is_there(path: &Path) -> bool {
    fs::symlink_metadata(path)
        .map_or_else(|error| error.kind() != io::ErrorKind::NotFound, |_| true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_host_comes_before_the_systems_and_a_name_before_both() {
        let folder = std::env::temp_dir().join(format!("siga-places-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (own, system) = (folder.join("own.sock"), folder.join("system.sock"));
        let chosen = |named: Option<&str>| {
            choose(named.map(PathBuf::from), Ok(own.clone()), &system).unwrap()
        };
        assert_eq!(chosen(None), own, "where a host can be started");
        fs::write(&system, "").unwrap();
        assert_eq!(chosen(None), system);
        fs::write(&own, "").unwrap();
        assert_eq!(chosen(None), own);
        assert_eq!(chosen(Some("/elsewhere")), Path::new("/elsewhere"));

        // A user without a directory for a socket, such as one that runs a service.
        let none = || Err(io::Error::new(io::ErrorKind::NotFound, "no place"));
        assert_eq!(choose(None, none(), &system).unwrap(), system);
        fs::remove_file(&system).unwrap();
        assert_eq!(choose(None, none(), &system).unwrap_err().to_string(), "no place");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn place_that_this_user_may_not_look_into_counts_as_there() {
        assert!(!is_there(Path::new("/nonexistent/siga.sock")));
        // No file lies below one that is no directory; root may look everywhere else.
        assert!(is_there(Path::new("/dev/null/siga.sock")));
    }
}
