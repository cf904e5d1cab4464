//! Guests whose host is replaced.

use std::path::PathBuf;

use siga::report::{PathState, SystemReport};
use siga::{Embedded, Guest, Observer, Path, PathOptions, System};

/// A place where hosts listen, one after the other.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let name = format!("siga-hosts-{name}-{}", std::process::id());
        Place(std::env::temp_dir().join(name))
    }

    fn host(&self) -> Embedded {
        let mut system = System::open();
        system.socket = Some(self.0.clone());
        Embedded::start(system).unwrap()
    }

    fn guest(&self, name: &str) -> Guest {
        Guest::attach(&self.0, name).unwrap()
    }

    /// Asks the host until it says what is expected.
    fn until(&self, guests: &[&Guest], expected: impl Fn(&SystemReport) -> bool) {
        let observer = Observer::attach(&self.0).unwrap();
        while !expected(&observer.query().unwrap()) {
            guests.iter().for_each(|guest| poll(guest));
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn poll(guest: &Guest) {
    guest.poll(os::processor::now_ns());
}

fn joined(client: &Guest, server: &Guest) -> (Path, Path) {
    let options = PathOptions::default();
    let connecting = client.start_connecting(server.name().as_str(), &options).unwrap();
    let accepted = server.accept().unwrap();
    (client.complete(connecting).unwrap(), accepted)
}

#[test]
fn guests_attach_to_the_next_host_and_it_accounts_for_their_paths() {
    let place = Place::new("next");
    let host = place.host();
    let (client, server) = (place.guest("CLIENT"), place.guest("SERVER"));
    let (mut ours, mut theirs) = joined(&client, &server);
    drop(host);
    ours.send(b"without a host").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"without a host");
    let _host = place.host();
    place.until(&[&client, &server], |report| {
        report.guests.len() == 2
            && report.paths.iter().any(|path| path.state == PathState::Joined)
            && ours.number() == report.paths[0].path
    });
    assert!(client.is_attached() && server.is_attached());
    ours.send(b"with another").unwrap();
    assert_eq!(theirs.receive().unwrap().body, b"with another");
    let (mut again, mut other) = joined(&client, &server);
    again.send(b"and a new path").unwrap();
    assert_eq!(other.receive().unwrap().body, b"and a new path");
}
