//! Messages whose type a select does not know: the operations of their channel on them, and the place of a received message.

use crate::chan::flow::{Chan, Taken};
use crate::chan::state::{Promised, State, Woken};
use std::alloc::{self, Layout};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

/// Messages up to this many bytes need no box.
const SPACE: usize = 32;

/// Bytes for the promise of a send.
const ROOM: usize = 80;

/// Where a select keeps a received message that fits, or the hook of the promise of a chosen send.
#[repr(C, align(16))]
pub struct Space(MaybeUninit<[u8; ROOM]>);

impl Space {
    /// Returns a space without a message.
    #[inline]
    pub fn empty() -> Self {
        Space(MaybeUninit::uninit())
    }
}

/// A received message that needs no box, until its select is completed.
#[repr(C, align(16))]
pub(crate) struct Inline(MaybeUninit<[u8; SPACE]>);

impl Inline {
    /// Moves the first bytes of the space here: a message, or bytes that are not read.
    #[inline]
    pub(crate) fn out_of(space: &Space) -> Self {
        // SAFETY: the space is at least as large, and its bytes may have any value.
        Inline(unsafe { (&raw const space.0).cast::<MaybeUninit<[u8; SPACE]>>().read() })
    }

    #[inline]
    pub(crate) fn slot(&mut self) -> *mut () {
        (&raw mut self.0).cast()
    }
}

/// The functions of a channel that depend on the type of its messages.
pub(crate) struct Ops {
    /// The layout of a box for a message; the size is never zero.
    pub(super) layout: Layout,
    /// Set if a message needs no box.
    pub(super) fits: bool,
    /// `Chan::take`.
    pub(super) take: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    /// `Chan::take_at_once`.
    pub(super) take_at_once: unsafe fn(*const (), &mut State, *mut (), &mut Woken) -> Taken,
    /// `Chan::take_message`.
    pub(super) take_message: unsafe fn(*const (), *mut ()) -> bool,
    pub(super) drop: unsafe fn(*mut ()),
    /// `Chan::withdraw`.
    pub(super) withdraw: unsafe fn(*const (), Promised) -> Woken,
}

/// The layout of a box for a `T`, of at least one byte: a zero-sized message may need more alignment than the space
/// has, and an allocation must not have size zero.
const fn layout_of_box<T>() -> Layout {
    let layout = Layout::new::<T>();
    // SAFETY: the alignment is that of a type, and one byte rounded up to the alignment does not overflow.
    if layout.size() > 0 { layout } else { unsafe { Layout::from_size_align_unchecked(1, layout.align()) } }
}

impl<T> Chan<T> {
    pub(super) const OPS: Ops = Ops {
        layout: layout_of_box::<T>(),
        fits: size_of::<T>() <= SPACE && align_of::<T>() <= align_of::<Space>(),
        take: Self::take_erased,
        take_at_once: Self::take_at_once_erased,
        take_message: Self::take_message_erased,
        drop: Self::drop_erased,
        withdraw: Self::withdraw_erased,
    };

    /// # Safety
    /// `this` is a `Chan<T>`; otherwise as `take`.
    unsafe fn take_erased(this: *const (), state: &mut State, slot: *mut (), woken: &mut Woken) -> Taken {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take(state, slot.cast(), woken) }
    }

    /// # Safety
    /// As `take_erased`.
    unsafe fn take_at_once_erased(
        this: *const (),
        state: &mut State,
        slot: *mut (),
        woken: &mut Woken,
    ) -> Taken {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take_at_once(state, slot.cast(), woken) }
    }

    /// # Safety
    /// `this` is a `Chan<T>`; otherwise as `take_message`.
    unsafe fn take_message_erased(this: *const (), slot: *mut ()) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).take_message(slot.cast()) }
    }

    /// # Safety
    /// A `T` lies at `message`, and is not used afterwards.
    unsafe fn drop_erased(message: *mut ()) {
        // SAFETY: by this function's contract.
        unsafe { message.cast::<T>().drop_in_place() }
    }

    /// # Safety
    /// `this` is a `Chan<T>`.
    unsafe fn withdraw_erased(this: *const (), promised: Promised) -> Woken {
        // SAFETY: by this function's contract.
        unsafe { (*this.cast::<Self>()).withdraw(promised) }
    }
}

/// Memory for a message that does not fit into the space. Dropping the box does not drop the message.
pub(super) struct Boxed {
    memory: NonNull<u8>,
    layout: &'static Layout,
}

impl Boxed {
    pub(super) fn new(layout: &'static Layout) -> Self {
        // SAFETY: the layout of a box is never empty.
        let memory = NonNull::new(unsafe { alloc::alloc(*layout) });
        Boxed { memory: memory.unwrap_or_else(|| alloc::handle_alloc_error(*layout)), layout }
    }

    pub(super) fn slot(&self) -> *mut () {
        self.memory.as_ptr().cast()
    }
}

impl Drop for Boxed {
    fn drop(&mut self) {
        // SAFETY: made by `new` with this layout.
        unsafe { alloc::dealloc(self.memory.as_ptr(), *self.layout) };
    }
}
