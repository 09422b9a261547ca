//! Where the bytes of one element lie.

#![expect(unsafe_code, reason = "copies from and to memory that the user has lent")]

/// Pieces of memory in packed order, relative to an element's address, and the distance to the next element.
#[derive(Debug)]
pub struct Layout {
    blocks: Vec<Block>,
    size: usize,
    extent: isize,
}

#[derive(Debug, Clone, Copy)]
struct Block {
    offset: isize,
    /// Packed bytes of the element before this block.
    at: usize,
    len: usize,
}

impl Layout {
    /// Of blocks (offset, length) in packed order; adjacent ones are joined.
    pub fn new(pieces: &[(isize, usize)], extent: isize) -> Self {
        let mut blocks: Vec<Block> = Vec::new();
        let mut size = 0;
        for &(offset, len) in pieces.iter().filter(|piece| piece.1 > 0) {
            match blocks.last_mut() {
                Some(last) if last.offset + last.len as isize == offset => last.len += len,
                _ => blocks.push(Block { offset, at: size, len }),
            }
            size += len;
        }
        Self { blocks, size, extent }
    }

    /// Packed bytes of one element.
    pub fn size(&self) -> usize {
        self.size
    }

    /// If `count` elements lie side by side in packed order: the first byte's offset from the address.
    pub fn contiguous_at(&self, count: usize) -> Option<isize> {
        match self.blocks[..] {
            [block] if count == 1 || self.extent == block.len as isize => Some(block.offset),
            _ => None,
        }
    }

    /// Copies packed bytes from `at` on.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be readable.
    pub unsafe fn pack(&self, base: *mut u8, at: usize, into: &mut [u8]) {
        let mut done = 0;
        self.pieces(base, at, into.len(), &mut |piece, len| {
            // SAFETY: the caller's promise; `into` is as long as all pieces together.
            unsafe { std::ptr::copy_nonoverlapping(piece, into[done..].as_mut_ptr(), len) };
            done += len;
            true
        });
    }

    /// Copies over packed bytes from `at` on.
    ///
    /// # Safety
    ///
    /// The memory of the elements that hold them must be writable.
    pub unsafe fn unpack(&self, base: *mut u8, at: usize, from: &[u8]) {
        let mut done = 0;
        self.pieces(base, at, from.len(), &mut |piece, len| {
            // SAFETY: the caller's promise; `from` is as long as all pieces together.
            unsafe { std::ptr::copy(from[done..].as_ptr(), piece, len) };
            done += len;
            true
        });
    }

    /// Names the pieces of memory with the packed bytes from `at` on, until `len` bytes are named or `visit` says no.
    pub fn pieces(&self, base: *mut u8, at: usize, len: usize, visit: &mut dyn FnMut(*mut u8, usize) -> bool) {
        let (mut element, mut within) = (at / self.size, at % self.size);
        let mut left = len;
        let mut index = self.blocks.partition_point(|block| block.at + block.len <= within);
        while left > 0 {
            let block = self.blocks[index];
            let skip = within - block.at;
            let len = left.min(block.len - skip);
            let offset = self.extent * element as isize + block.offset + skip as isize;
            if !visit(base.wrapping_offset(offset), len) {
                return;
            }
            left -= len;
            within += len;
            index += 1;
            if index == self.blocks.len() {
                (element, index, within) = (element + 1, 0, 0);
            }
        }
    }
}
