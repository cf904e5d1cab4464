//! The reasons why a packet does not pass a bridge.

/// A reason why a packet does not pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Dropped {
    /// It is no packet of IP.
    NotIp,
    /// It is for a group, or for all.
    Group,
    /// It belongs to a VLAN.
    Vlan,
    /// It is from or for an address outside of the LAN's networks.
    Elsewhere,
    /// Its source is not an address of the side that it comes from, or of the member that has sent it.
    Source,
    /// From the LAN: the adapter does not answer for its source. There are more addresses than the bridge registers, or the adapter refuses it.
    Unregistered,
    /// From the LAN: it is for a member of the LAN.
    OnLan,
    /// From the port: no member of the LAN has the address that it is for. Or its member has gone while it waited.
    NoMember,
    /// It is longer than packets on the other side may be. The sender is told.
    Long,
    /// As many packets of its member wait as may.
    Full,
    /// The other side is not there.
    Unreachable,
    /// This process lacks descriptors or memory.
    Lacking,
}

impl Dropped {
    /// All of them, in their order.
    pub const ALL: [Dropped; 12] = [
        Dropped::NotIp,
        Dropped::Group,
        Dropped::Vlan,
        Dropped::Elsewhere,
        Dropped::Source,
        Dropped::Unregistered,
        Dropped::OnLan,
        Dropped::NoMember,
        Dropped::Long,
        Dropped::Full,
        Dropped::Unreachable,
        Dropped::Lacking,
    ];

    /// What the user is told when the first packet is dropped for this reason. None if that is nothing to be told of.
    pub(super) fn notice(self) -> Option<&'static str> {
        match self {
            Dropped::NotIp | Dropped::OnLan | Dropped::NoMember | Dropped::Unreachable => None,
            Dropped::Group => Some("packets to groups and to all stay on their side"),
            Dropped::Vlan => Some("packets in a VLAN stay on their side"),
            Dropped::Elsewhere => {
                Some("packets from and to addresses outside of the LAN's range stay on their side")
            }
            Dropped::Source => {
                Some("there are packets with a source address that is not their sender's")
            }
            Dropped::Unregistered => {
                Some("members whose addresses are not registered at the port send packets there")
            }
            Dropped::Long => Some(
                "there are packets longer than the other side takes, and their senders are told",
            ),
            Dropped::Full => Some("a member sends or receives more than it has a share for"),
            Dropped::Lacking => Some("this process lacks descriptors or memory"),
        }
    }
}
