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
    /// The machine's own name, if it has one.
    machine: Option<String>,
    /// Of the members that were looked at last.
    changes: Option<u64>,
    /// The text that was written to the file last.
    text: Option<String>,
    /// How often it was written.
    #[cfg(test)]
    written: u64,
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
        let machine = rustix::system::uname();
        let machine = machine.nodename().to_str().ok().filter(|name| is_name(name));
        Ok(Hosts {
            file,
            before,
            machine: machine.map(str::to_owned),
            changes: None,
            text: None,
            #[cfg(test)]
            written: 0,
        })
    }

    /// Puts the members of the LAN into the file, if their names or addresses are others than before. A program that reads
    /// the file at this moment may see a part of each text.
    ///
    /// # Errors
    /// There is no memory left: the file is what it was, or a part of what it is to be.
    pub fn follow(&mut self, lan: &mut Lan) -> io::Result<()> {
        let changes = lan.changes();
        if self.changes == Some(changes) {
            return Ok(());
        }
        let first = own_lines(lan.addresses(), self.machine.as_deref());
        let lan_name = lan.name();
        let members = lan
            .members()
            .flat_map(|member| member.addresses.iter().map(move |address| (*address, member.name)));
        // Names are looked up in small letters; most programs do not mind, and some do.
        let members = members.map(|(address, name)| (address, name.as_str().to_lowercase()));
        let text = text(&first, &self.before, lan_name.as_str(), members);
        self.put(text)?;
        self.changes = Some(changes);
        Ok(())
    }

    /// Writes a text, if the file has another.
    fn put(&mut self, text: String) -> io::Result<()> {
        if self.text.as_ref() == Some(&text) {
            return Ok(());
        }
        // A part may be written if that fails.
        self.text = None;
        #[cfg(test)]
        {
            self.written += 1;
        }
        self.file.write_all_at(text.as_bytes(), 0)?;
        self.file.set_len(text.len() as u64)?;
        self.text = Some(text);
        Ok(())
    }
}

/// Returns true if a word can be a name in a hosts file.
fn is_name(word: &str) -> bool {
    !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
}

/// The lines that stand before the machine's own: what the machine is called is the program's address on the LAN. Elsewhere it is often an
/// address of the loopback interface, and a server that binds its own name would be reached by nobody. They stand before the members' lines,
/// too: a member that takes the machine's name must not have the servers of others bind its address.
fn own_lines(addresses: &[IpAddr], machine: Option<&str>) -> String {
    let mut lines = String::new();
    let Some(machine) = machine.filter(|machine| *machine != "localhost") else { return lines };
    for address in addresses {
        let _ = writeln!(lines, "{address}\t{machine}");
    }
    lines
}

/// The text of the file.
fn text(
    first: &str,
    before: &str,
    lan: &str,
    members: impl Iterator<Item = (IpAddr, String)>,
) -> String {
    let mut text = format!("{first}{before}\n# The members of the LAN {lan}, kept by siga.\n");
    for (address, name) in members {
        // What follows the sign is a comment: such a name would be read as another guest's.
        if !name.contains('#') {
            let _ = writeln!(text, "{address}\t{name}");
        }
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
        let addresses = ["10.1.0.7".parse().unwrap()];
        let first = own_lines(&addresses, Some("machine"));
        let text = text(&first, "127.0.0.1 localhost machine\n", "hs0", members.into_iter());
        let expected = "10.1.0.7\tmachine\n127.0.0.1 localhost machine\n\n# The members of the LAN hs0, kept by siga.\n\
                        10.1.0.5\tweb\nfd00::5\tweb\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn name_that_would_be_read_as_another_is_left_out() {
        let members = [("10.1.0.5", "web#"), ("10.1.0.6", "web"), ("10.1.0.7", "#1")];
        let members = members.map(|(address, name)| (address.parse().unwrap(), name.to_owned()));
        let text = text("", "", "hs0", members.into_iter());
        assert_eq!(text, "\n# The members of the LAN hs0, kept by siga.\n10.1.0.6\tweb\n");
    }

    #[test]
    fn file_is_written_when_its_text_is_another_and_only_then() {
        let path = std::env::temp_dir().join(format!("siga-hosts-{}", std::process::id()));
        let options =
            File::options().read(true).write(true).create(true).truncate(true).open(&path);
        let file = options.unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut hosts = Hosts::new(file.try_clone().unwrap()).unwrap();
        for text in ["one", "one", "another", "another", "one"] {
            hosts.put(text.to_owned()).unwrap();
            let mut found = vec![0; file.metadata().unwrap().len() as usize];
            file.read_exact_at(&mut found, 0).unwrap();
            assert_eq!(found, text.as_bytes());
        }
        assert_eq!(hosts.written, 3);
    }

    #[test]
    fn machine_without_a_name_of_its_own_has_no_line() {
        let addresses = ["10.1.0.7".parse().unwrap()];
        for machine in [None, Some("localhost")] {
            assert_eq!(own_lines(&addresses, machine), "");
        }
        assert!(is_name("a-1.example") && !is_name("") && !is_name("a b") && !is_name("(none)"));
    }
}
