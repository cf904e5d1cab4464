//! What may become of a program: success, a program check, a unit check with sense, or the end that its guest asked for.

use channel::request::Answer;
use disk::format::scsw::{CONDITION_CODE, DeviceStatus, Scsw, SubchannelStatus, control};

/// Panics unless this may be the end of a program, which may have been cancelled or not.
pub(super) fn check_end(answer: &Answer, may_be_cancelled: bool) {
    let Answer { scsw, sense, .. } = answer;
    let Scsw { control, device, subchannel, .. } = scsw;
    let known = DeviceStatus::ENDED
        .with(DeviceStatus::UNIT_CHECK)
        .with(DeviceStatus::UNIT_EXCEPTION)
        .with(DeviceStatus::STATUS_MODIFIER);
    assert!(known.has(*device), "device status: {scsw:x?}");
    // An interruption that the program asked for, and that was not told before, goes with its end.
    let checks = SubchannelStatus::INTERRUPT.0
        | SubchannelStatus::PROGRAM_CHECK.0
        | SubchannelStatus::INCORRECT_LENGTH.0
        | SubchannelStatus::CHAINING_CHECK.0;
    assert_eq!(subchannel.0 & !checks, 0, "subchannel status: {scsw:x?}");
    assert_eq!(sense.is_some(), device.has(DeviceStatus::UNIT_CHECK), "sense: {scsw:x?}");
    assert!(control & control::PENDING != 0 && control & control::INTERMEDIATE == 0, "{scsw:x?}");
    let is_withdrawn = may_be_cancelled && *control == control::PENDING;
    let is_asked_for = control & (control::HALT | control::CLEAR) != 0 || is_withdrawn;
    let is_told = subchannel.has(SubchannelStatus::PROGRAM_CHECK)
        || scsw.is_not_operational()
        || device.has(DeviceStatus::ENDED);
    assert!(is_asked_for || is_told, "an end of no kind: {scsw:x?}");
    check_places(answer);
}

/// Panics unless a program is not operational exactly if its path mask does not name the device's channel path.
pub(super) fn check_path(answer: &Answer, is_named: bool) {
    let Answer { scsw, sources, .. } = answer;
    let code = if is_named { 0 } else { CONDITION_CODE };
    assert_eq!(scsw.conditions & CONDITION_CODE, code, "deferred condition code: {scsw:x?}");
    assert!(is_named || sources.is_empty(), "data of a program without a path: {scsw:x?}");
}

/// Panics unless all data have places.
pub(super) fn check_places(answer: &Answer) {
    let placed: u64 = answer.places.iter().map(|place| u64::from(place.bytes)).sum();
    let read: u64 = answer.sources.iter().map(|source| source.bytes()).sum();
    assert_eq!(placed, read, "bytes that were read and have a place");
}
