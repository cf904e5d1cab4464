//! The place where a host listens.

use std::io;
use std::path::PathBuf;

use os::peer::Credentials;

/// The default place where guests attach: `siga.sock` in `/run` for root, otherwise in
/// `$XDG_RUNTIME_DIR`, or in `/run/user/UID` where that is set up.
///
/// # Errors
/// `NotFound` if there is no such directory.
pub fn default_socket() -> io::Result<PathBuf> {
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
