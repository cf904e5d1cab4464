//! Where the host is.

use std::path::PathBuf;

use crate::outcome::Outcome;

/// The option that says where the host is.
#[derive(Clone, Debug, clap::Args)]
pub struct Socket {
    /// Where the host listens [default: /run/siga.sock for root, $XDG_RUNTIME_DIR/siga.sock otherwise; guests look at
    /// /run/siga/siga.sock, the host of the system, where this user has none] [env: SIGA_SOCKET]
    // Read where the default is looked for: clap would show the option in each usage line where the variable is set.
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
}

impl Socket {
    /// The place to attach at: the one that was given here or by SIGA_SOCKET, or that of this user's host, or that of the system's.
    pub fn path(&self) -> Result<PathBuf, Outcome> {
        self.or(siga::default_socket)
    }

    /// The place to listen at: the one that was given here or by SIGA_SOCKET, or the usual one of this user.
    pub fn to_listen(&self) -> Result<PathBuf, Outcome> {
        self.or(siga::own_socket)
    }

    fn or(&self, usual: fn() -> std::io::Result<PathBuf>) -> Result<PathBuf, Outcome> {
        match &self.socket {
            Some(socket) => Ok(socket.clone()),
            None => usual().map_err(Outcome::no),
        }
    }
}
