//! The names of the members of a LAN, in the hosts file that a program reads.

use std::fmt::Write as _;
use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;

use siga::lan::Lan;

/// Bytes of the longest text that is kept of the file that was there.
const BEFORE_BYTES_MAX: u64 = 1 << 16;

/// A hosts file that follows the members.
#[derive(Debug)]
pub struct Hosts {
    file: File,
    /// What is in the machine's own file.
    before: String,
    /// Of the members that the file has.
    changes: Option<u64>,
}

impl Hosts {
    /// A file that has the text of the machine's own so far.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn new(file: File) -> io::Result<Hosts> {
        let mut before = vec![0; file.metadata()?.len().min(BEFORE_BYTES_MAX) as usize];
        file.read_exact_at(&mut before, 0)?;
        let mut before = String::from_utf8_lossy(&before).into_owned();
        if !before.is_empty() && !before.ends_with('\n') {
            before.push('\n');
        }
        Ok(Hosts { file, before, changes: None })
    }

    /// Puts the members of the LAN into the file, if they are others than before. A program that reads it at this moment
    /// may see a part of each text.
    ///
    /// # Errors
    /// There is no memory left: the file is what it was, or a part of what it is to be.
    pub fn follow(&mut self, lan: &mut Lan) -> io::Result<()> {
        let changes = lan.changes();
        if self.changes == Some(changes) {
            return Ok(());
        }
        let lan_name = lan.name();
        let members = lan
            .members()
            .flat_map(|member| member.addresses.iter().map(move |address| (*address, member.name)));
        // Names are looked up in small letters; most programs do not mind, and some do.
        let members = members.map(|(address, name)| (address, name.as_str().to_lowercase()));
        let text = text(&self.before, lan_name.as_str(), members);
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        self.changes = Some(changes);
        Ok(())
    }
}

/// The text of the file.
fn text(before: &str, lan: &str, members: impl Iterator<Item = (IpAddr, String)>) -> String {
    let mut text = format!("{before}\n# The members of the LAN {lan}, kept by siga.\n");
    for (address, name) in members {
        let _ = writeln!(text, "{address}\t{name}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stand_behind_what_was_there() {
        let members = [("10.1.0.5", "web"), ("fd00::5", "web")];
        let members = members.map(|(address, name)| (address.parse().unwrap(), name.to_owned()));
        let text = text("127.0.0.1 localhost\n", "hs0", members.into_iter());
        let expected = "127.0.0.1 localhost\n\n# The members of the LAN hs0, kept by siga.\n\
                        10.1.0.5\tweb\nfd00::5\tweb\n";
        assert_eq!(text, expected);
    }
}
