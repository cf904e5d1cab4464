//! What programs have set for their connections.

use std::time::Duration;

use net::tcpip::{ConnectionId, KeepAlive};

/// What a program has set for one of its connections.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Settings {
    /// Handles that stand for it.
    pub(super) handles: u32,
    pub(super) is_nonblocking: bool,
    pub(super) has_no_delay: bool,
    pub(super) service: u8,
    pub(super) read_limit: Option<Duration>,
    pub(super) write_limit: Option<Duration>,
    pub(super) keep_alive: Option<KeepAlive>,
    pub(super) linger: Option<Duration>,
}

/// The connections that a program has, and what is set for each.
#[derive(Debug, Default)]
pub(super) struct Held {
    /// By the index of the connection, which several have one after the other.
    settings: Vec<Option<(ConnectionId, Settings)>>,
    /// Of a connection that the stack has forgotten while its program had it: a defect of the stack, which must not change
    /// another connection.
    lost: Settings,
}

impl Held {
    /// Adds a connection, with one handle and the default settings.
    pub(super) fn add(&mut self, id: ConnectionId) {
        let index = id.index();
        if self.settings.len() <= index {
            self.settings.resize(index + 1, None);
        }
        self.settings[index] = Some((id, Settings { handles: 1, ..Settings::default() }));
    }

    /// The settings of a connection. Those of a connection that was not added, or whose index another connection has, are the
    /// default ones, and changes of them have no effect.
    pub(super) fn get(&mut self, id: ConnectionId) -> &mut Settings {
        match self.settings.get_mut(id.index()) {
            Some(Some((of, settings))) if *of == id => settings,
            _ => {
                self.lost = Settings::default();
                &mut self.lost
            }
        }
    }

    /// Drops a handle of a connection. With the last one the connection is removed, and its settings are returned.
    pub(super) fn drop_handle(&mut self, id: ConnectionId) -> Option<Settings> {
        let entry = self.settings.get_mut(id.index())?;
        let (_, settings) = entry.as_mut().filter(|(of, _)| *of == id)?;
        settings.handles -= 1;
        if settings.handles > 0 {
            return None;
        }
        entry.take().map(|(_, settings)| settings)
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use net::lan::frame::Mac;
    use net::tcpip::{Options, Secret, Stack};

    use super::*;

    #[test]
    fn connection_has_settings_of_its_own_though_its_index_was_another_ones() {
        let address: IpAddr = "10.1.0.1".parse().unwrap();
        let mac = Mac([2, 0, 0, 0, 0, 1]);
        let mut stack = Stack::new(mac, &[address], Options::default(), Secret([7; 16]));
        let mut connect = || {
            let id = stack.connect(0, "10.1.0.2:7".parse().unwrap()).unwrap();
            // The stack forgets it, and gives its index to the next one.
            stack.close(id);
            id
        };
        let (first, second) = (connect(), connect());
        assert!(first.index() == second.index() && first != second);
        let mut held = Held::default();
        held.add(first);
        held.get(first).is_nonblocking = true;
        held.get(first).handles += 1;
        held.add(second);
        held.get(first).has_no_delay = true;
        assert!(!held.get(first).is_nonblocking);
        assert!(!held.get(second).has_no_delay);
        for _ in 0..2 {
            assert!(held.drop_handle(first).is_none());
        }
        assert_eq!(held.get(second).handles, 1);
        assert!(held.drop_handle(second).is_some());
        assert!(held.drop_handle(second).is_none());
    }
}
