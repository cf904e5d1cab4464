//! Which events a guest is told.

use message::iucv::Interrupt;

/// Which events are reported, by the bits of SETMASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mask(pub u8);

impl Mask {
    /// All.
    pub const ALL: Mask = Mask(0xf8);
    /// Messages without priority that wait.
    pub const MESSAGES: Mask = Mask(0x80);
    /// Messages with priority that wait.
    pub const PRIORITY_MESSAGES: Mask = Mask(0x40);
    /// Messages without priority that are complete.
    pub const REPLIES: Mask = Mask(0x20);
    /// Messages with priority that are complete.
    pub const PRIORITY_REPLIES: Mask = Mask(0x10);
    /// What is about paths: see [`ControlMask`].
    pub const CONTROL: Mask = Mask(0x08);
}

/// Which events about connections are reported, by the bits of SETCMASK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ControlMask(pub u8);

impl ControlMask {
    /// All.
    pub const ALL: ControlMask = ControlMask(0xf8);
    /// Connections that wait.
    pub const PENDING: ControlMask = ControlMask(0x80);
    /// Connections that were accepted.
    pub const COMPLETE: ControlMask = ControlMask(0x40);
    /// Paths that have ended.
    pub const SEVERED: ControlMask = ControlMask(0x20);
    /// Paths that were quiesced.
    pub const QUIESCED: ControlMask = ControlMask(0x10);
    /// Paths that were resumed.
    pub const RESUMED: ControlMask = ControlMask(0x08);
}

/// Both masks of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Masks {
    pub(super) mask: Mask,
    pub(super) control: ControlMask,
}

impl Masks {
    pub(super) const ALL: Masks = Masks { mask: Mask::ALL, control: ControlMask::ALL };

    /// Whether events of this type are reported.
    pub(super) fn let_through(self, interrupt: Interrupt) -> bool {
        let Masks { mask, control } = self;
        let bit = match interrupt {
            Interrupt::MessagePending => Mask::MESSAGES,
            Interrupt::PriorityMessagePending => Mask::PRIORITY_MESSAGES,
            Interrupt::MessageComplete => Mask::REPLIES,
            Interrupt::PriorityMessageComplete => Mask::PRIORITY_REPLIES,
            about_paths => {
                let bit = 0x80 >> (about_paths as u8 - 1);
                return mask.0 & Mask::CONTROL.0 != 0 && control.0 & bit != 0;
            }
        };
        mask.0 & bit.0 != 0
    }
}
