//! A path to a guest that exhausts: each message that arrives is answered.

use proof::dice::mix;
use siga::waiter::{Member, OneOf};
use siga::{Path, Reason};

use super::reading::End;

/// Messages answered before the next path has its turn.
const MESSAGES_PER_TURN: usize = 32;

/// What a message is answered with: its length and a sum of its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply([u8; 16]);

impl Reply {
    /// The answer to a message.
    pub fn to(body: &[u8]) -> Reply {
        let length = body.len() as u64;
        let sum = body.iter().fold(length, |sum, byte| mix(sum ^ u64::from(*byte)));
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&length.to_le_bytes());
        bytes[8..].copy_from_slice(&sum.to_le_bytes());
        Reply(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }
}

/// A path whose messages are answered.
#[derive(Debug)]
pub struct Echo {
    path: Path,
    more: bool,
}

impl Echo {
    /// Answers what comes over `path`.
    pub fn new(path: Path) -> Echo {
        Echo { path, more: true }
    }

    /// Answers what has come.
    ///
    /// # Errors
    /// [`End`]: `Severed` if the path has ended as it may.
    pub fn serve(&mut self) -> Result<(), End> {
        self.more = false;
        for _ in 0..MESSAGES_PER_TURN {
            let reply = match self.path.try_receive() {
                Ok(Some(message)) => Reply::to(message.body),
                Ok(None) => return Ok(()),
                Err(severed) => {
                    return Err(match severed.reason {
                        // It may give the path up, or lack what it takes, or be killed.
                        Reason::Peer | Reason::PeerLacking | Reason::Gone => severed.into(),
                        _ => End::Wrong(format!("a path to one that exhausts: {severed}")),
                    });
                }
            };
            // The peer asks one question at a time; if it is gone, receiving reports it.
            match self.path.try_send(reply.bytes()) {
                Ok(()) | Err(siga::TrySendError::Send(siga::SendError::Severed(_))) => {}
                Err(error) => {
                    return Err(End::Wrong(format!("an answer to one that exhausts: {error}")));
                }
            }
        }
        self.more = true;
        Ok(())
    }
}

/// The path, which is also ready while there is more to do.
impl OneOf for Echo {
    fn member(&self) -> &dyn Member {
        &self.path
    }

    fn member_mut(&mut self) -> &mut dyn Member {
        &mut self.path
    }

    fn is_one_ready(&mut self) -> bool {
        self.more || self.path.is_ready()
    }
}
