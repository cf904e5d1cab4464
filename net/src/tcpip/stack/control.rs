//! What a stack does about messages of ICMP. Each may be forged: so an error is believed only if it is about a byte that is
//! under way, or a socket that is there (RFC 5927).

use super::*;
use crate::tcpip::control::{self, Report, Trouble};

impl Stack {
    pub(super) fn take_control(
        &mut self,
        now: u64,
        packet: &Packet<'_>,
        link: &mut impl Link,
    ) -> Result<(), Counter> {
        if control::echo_identifier(packet).is_some() && !self.has_address(packet.destination) {
            return self.hand_over_echo(packet);
        }
        if let Some(frame) = control::echo_reply(packet) {
            self.counters.count(Counter::EchoesAnswered);
            self.answer_in_parts(now, packet.source, frame, link);
            return Ok(());
        }
        let report = control::report(packet)?.ok_or(Counter::OtherProtocol)?;
        if report.local.ip() != packet.destination {
            return Err(Counter::ErrorNotOurs);
        }
        match report.protocol {
            TCP => self.take_report(now, report, packet),
            UDP => self.take_report_of_datagram(now, report),
            _ => Err(Counter::ErrorNotOurs),
        }
    }

    /// An error about a segment of TCP.
    fn take_report(
        &mut self,
        now: u64,
        report: Report,
        packet: &Packet<'_>,
    ) -> Result<(), Counter> {
        let tuple = Tuple { local: report.local, remote: report.remote };
        let Some(index) = self.live.find(&tuple, &self.connections) else {
            let is_handed_over = !self.has_only_connections() && self.hand_over(now, tuple, packet);
            return if is_handed_over { Ok(()) } else { Err(Counter::ErrorNotOurs) };
        };
        let connection = self.connections.get_mut(index).ok_or(Counter::ErrorNotOurs)?;
        let tcb = connection.tcb.as_ref().ok_or(Counter::ErrorNotOurs)?;
        if !tcb.is_under_way(report.sequence) {
            return Err(Counter::ErrorNotOurs);
        }
        self.counters.count(Counter::ErrorsReceived);
        let end = match report.trouble {
            Trouble::TooBig(mtu) => {
                self.path_mtus.note(now, report.remote.ip(), mtu, report.bytes);
                self.make_busy(index);
                return Ok(());
            }
            Trouble::Refused => End::Refused,
            Trouble::HostUnreachable => End::HostUnreachable,
            Trouble::NetworkUnreachable => End::NetworkUnreachable,
        };
        // Once a connection is there, an error may pass, and is no reason to end it (RFC 5927 4.2, RFC 1122 4.2.3.9). While
        // it is being made, Linux gives it up at any error, and so do we.
        if matches!(tcb.state(), State::SynSent | State::SynReceived) {
            self.end_unmade(index, end);
        }
        Ok(())
    }

    /// An error about a datagram.
    fn take_report_of_datagram(&mut self, now: u64, report: Report) -> Result<(), Counter> {
        let Report { local, remote, trouble, bytes, .. } = report;
        let at = self.sockets.at(local).ok_or(Counter::ErrorNotOurs)?;
        let queue = self.sockets.bound.get_mut(&at).ok_or(Counter::ErrorNotOurs)?;
        if queue.remote().is_some_and(|connected| connected != remote) {
            return Err(Counter::ErrorNotOurs);
        }
        match trouble {
            Trouble::TooBig(mtu) => {
                self.path_mtus_of_datagrams.note(now, remote.ip(), mtu, bytes);
            }
            // As Linux does: only a connected socket learns it, and only what stays so.
            Trouble::Refused => {
                queue.refuse();
                self.note_socket(at);
            }
            Trouble::HostUnreachable | Trouble::NetworkUnreachable => {}
        }
        self.counters.count(Counter::ErrorsReceived);
        Ok(())
    }

    /// Nobody has bound the port of a datagram: its sender is told, if it was not told too often.
    pub(super) fn refuse(&mut self, now: u64, packet: &Packet<'_>, link: &mut impl Link) {
        if self.errors.may_send(now, packet.source) {
            let mut frame = control::port_unreachable(packet);
            self.counters.count(Counter::ErrorsSent);
            self.answer(packet.source, Offload::NONE, &mut frame, link);
        }
    }
}
