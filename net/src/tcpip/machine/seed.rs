//! Seeds with which a state machine begins with a given sequence number.

use super::*;

/// A seed with which an interface's first sequence number is this one.
///
/// smoltcp has no other way to say so. Its generator is sPCG32 (O'Neill, "PCG", 2014): each state is the one before times M,
/// plus A, and the number is 32 bits of it, from a place that its highest three bits say. The first number is for another
/// purpose, and is drawn again if it would be zero there. [`Engine::new`] tries whether that is still so.
pub(in crate::tcpip) fn seed_for(first: u32) -> u64 {
    const M: u64 = 0xbb2e_fcec_3c39_611d;
    const A: u64 = 0x7590_ef39;
    // Newton's method: each step doubles the bits that are right, of which an odd number has three to begin with.
    const INVERSE: u64 = {
        let (mut inverse, mut step) = (M, 0);
        while step < 5 {
            inverse = inverse.wrapping_mul(2u64.wrapping_sub(M.wrapping_mul(inverse)));
            step += 1;
        }
        inverse
    };
    let before = |state: u64| state.wrapping_sub(A).wrapping_mul(INVERSE);
    let number = |state: u64| (state >> (29 - (state >> 61))) as u32;
    let state = |low: u64| 7 << 61 | u64::from(first) << 22 | low;
    let is_right = |state: &u64| {
        let other = number(before(*state));
        (other ^ other >> 16) as u16 != 0
    };
    let state = (0..1 << 22).map(state).find(is_right).unwrap_or_default();
    before(before(state))
}

/// The sequence number with which a socket begins that has this seed.
pub(super) fn begins_with(seed: u64) -> Option<u32> {
    let buffer = || tcp::SocketBuffer::new(vec![0; 1]);
    let mut set = SocketSet::new(Vec::with_capacity(1));
    let handle = set.add(tcp::Socket::new(buffer(), buffer()));
    let address = |last| SocketAddr::from(([192, 0, 2, last], 1));
    let mut interface = interface(1280, seed, None);
    let (local, remote) = (IpListenEndpoint::from(endpoint(address(1))), endpoint(address(2)));
    set.get_mut::<tcp::Socket<'_>>(handle).connect(interface.context(), remote, local).ok()?;
    let (mut output, mut counters, mut room) = (Output::default(), Counters::new(), Vec::new());
    let way = &mut Way {
        link: &mut Nobody,
        output: &mut output,
        counters: &mut counters,
        room: &mut room,
    };
    let mut sent = Sent::default();
    let mut tap =
        Tap { mtu: 1280, input: None, to: address(2).ip(), window_shift: 0, sent: &mut sent, way };
    interface.poll_egress(instant(0), &mut tap, &mut set);
    sent.is_any.then(|| sent.next.wrapping_sub(1))
}
