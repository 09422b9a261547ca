//! Compares the loops with a simple computation of one value at a time.

use proptest::prelude::*;

use super::*;
use crate::abi::OpHandle;
use crate::abi::constants as c;
use crate::datatype::{Class, Element, Form, Repr, TypeRef};
use crate::object::ops::Ops;
use crate::op::Builtin;

fn predefined(handle: usize) -> (&'static Datatype, DatatypeHandle) {
    let handle = DatatypeHandle(handle);
    (Datatype::predefined(Element::of(handle).unwrap()), handle)
}

fn reduction(op: Builtin, element: Element) -> MpiResult<Reduction> {
    Reduction::new(&OpRef::Builtin(op), Datatype::predefined(element), element.handle())
}

/// Combines at odd addresses, as users may pass, and checks that nothing beyond the elements is written.
fn apply(reduction: &Reduction, input: &[u8], inout: &[u8], count: usize) -> Vec<u8> {
    let mut padded = [&[0xa5], inout, &[0x5a]].concat();
    let input = [&[0], input].concat();
    // SAFETY: both are `count` elements long, from their second byte on.
    unsafe { reduction.apply(input.as_ptr().wrapping_add(1), padded.as_mut_ptr().wrapping_add(1), count) };
    assert_eq!((padded[0], padded[padded.len() - 1]), (0xa5, 0x5a));
    padded[1..padded.len() - 1].to_vec()
}

/// The expected results for integers of `size` bytes, signed or unsigned.
fn integers(op: Builtin, size: usize, signed: bool, input: &[u8], inout: &[u8]) -> Option<Vec<u8>> {
    let value = |bytes: &[u8]| {
        let fill = if signed && bytes[size - 1] & 0x80 != 0 { 0xff } else { 0 };
        let mut wide = [fill; 16];
        wide[..size].copy_from_slice(bytes);
        i128::from_le_bytes(wide)
    };
    let (a, b) = (value(input), value(inout));
    let result = match op {
        Builtin::Sum => a.wrapping_add(b),
        Builtin::Prod => a.wrapping_mul(b),
        Builtin::Min => a.min(b),
        Builtin::Max => a.max(b),
        Builtin::LogicalAnd => i128::from(a != 0 && b != 0),
        Builtin::LogicalOr => i128::from(a != 0 || b != 0),
        Builtin::LogicalXor => i128::from((a != 0) != (b != 0)),
        Builtin::BitAnd => a & b,
        Builtin::BitOr => a | b,
        Builtin::BitXor => a ^ b,
        Builtin::MinLoc | Builtin::MaxLoc | Builtin::Replace | Builtin::NoOp => return None,
    };
    Some(result.to_le_bytes()[..size].to_vec())
}

fn whole(repr: Repr) -> Option<bool> {
    match repr {
        Repr::Int8 | Repr::Int16 | Repr::Int32 | Repr::Int64 | Repr::Int128 => Some(true),
        Repr::Uint8 | Repr::Uint16 | Repr::Uint32 | Repr::Uint64 | Repr::Uint128 => Some(false),
        _ => None,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn integers_and_truth_values_combine_as_one_by_one(bytes in prop::collection::vec(any::<u8>(), 2 * 16 * 19)) {
        for element in Element::all() {
            let Some(signed) = whole(element.repr()) else { continue };
            for op in Builtin::all().filter(|op| op.accepts(element.class())) {
                let (size, count) = (element.size(), 19);
                let (input, inout) = bytes.split_at(bytes.len() / 2);
                let (input, inout) = (&input[..size * count], &inout[..size * count]);
                let expected: Option<Vec<_>> = input
                    .chunks(size)
                    .zip(inout.chunks(size))
                    .map(|(input, inout)| integers(op, size, signed, input, inout))
                    .collect();
                let expected = expected.unwrap().concat();
                let result = apply(&reduction(op, element).unwrap(), input, inout, count);
                prop_assert_eq!(result, expected, "{} of {}", op.name(), element.name());
            }
        }
    }

    #[test]
    fn floating_point_numbers_combine_as_one_by_one(
        a in prop::collection::vec(any::<f64>(), 17), b in prop::collection::vec(any::<f64>(), 17),
    ) {
        let bytes = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
        let short = |numbers: &[f64]| numbers.iter().flat_map(|number| (*number as f32).to_ne_bytes()).collect::<Vec<u8>>();
        type Rule = (Builtin, fn(f64, f64) -> f64, fn(f32, f32) -> f32);
        let rules: [Rule; 4] = [
            (Builtin::Sum, |a, b| a + b, |a, b| a + b),
            (Builtin::Prod, |a, b| a * b, |a, b| a * b),
            (Builtin::Min, |a, b| if a < b { a } else { b }, |a, b| if a < b { a } else { b }),
            (Builtin::Max, |a, b| if a > b { a } else { b }, |a, b| if a > b { a } else { b }),
        ];
        for (op, long, float) in rules {
            let expected: Vec<f64> = a.iter().zip(&b).map(|(a, b)| long(*a, *b)).collect();
            let double = reduction(op, predefined(c::MPI_DOUBLE).0.element().unwrap()).unwrap();
            prop_assert_eq!(apply(&double, &bytes(&a), &bytes(&b), 17), bytes(&expected));
            let expected: Vec<u8> =
                a.iter().zip(&b).flat_map(|(a, b)| float(*a as f32, *b as f32).to_ne_bytes()).collect();
            let single = reduction(op, predefined(c::MPI_REAL).0.element().unwrap()).unwrap();
            prop_assert_eq!(apply(&single, &short(&a), &short(&b), 17), expected);
        }
    }
}

#[test]
fn complex_numbers_are_added_and_multiplied() {
    let bytes = |numbers: [f64; 4]| numbers.iter().flat_map(|number| number.to_ne_bytes()).collect::<Vec<u8>>();
    let (a, b) = (bytes([1.0, 2.0, 0.5, -1.0]), bytes([3.0, -4.0, 2.0, 8.0]));
    let complex = predefined(c::MPI_C_DOUBLE_COMPLEX).0.element().unwrap();
    assert_eq!(apply(&reduction(Builtin::Sum, complex).unwrap(), &a, &b, 2), bytes([4.0, -2.0, 2.5, 7.0]));
    assert_eq!(apply(&reduction(Builtin::Prod, complex).unwrap(), &a, &b, 2), bytes([11.0, 2.0, 9.0, 2.0]));
}

#[cfg(target_arch = "x86_64")]
#[test]
fn long_doubles_combine() {
    use crate::op::extended::Extended;

    let bytes = |numbers: &[f64]| {
        let mut bytes = Vec::new();
        for number in numbers {
            // SAFETY: 16 bytes, all of them set.
            bytes.extend(unsafe { std::mem::transmute::<Extended, [u8; 16]>(Extended::of(*number)) });
        }
        bytes
    };
    let element = predefined(c::MPI_LONG_DOUBLE).0.element().unwrap();
    for (op, expected) in [
        (Builtin::Sum, [4.0, -5.5]),
        (Builtin::Prod, [3.0, 7.5]),
        (Builtin::Min, [1.0, -3.0]),
        (Builtin::Max, [3.0, -2.5]),
    ] {
        let result = apply(&reduction(op, element).unwrap(), &bytes(&[1.0, -2.5]), &bytes(&[3.0, -3.0]), 2);
        assert_eq!(result, bytes(&expected), "{}", op.name());
    }
    let complex = predefined(c::MPI_C_LONG_DOUBLE_COMPLEX).0.element().unwrap();
    let product = apply(&reduction(Builtin::Prod, complex).unwrap(), &bytes(&[1.0, 2.0]), &bytes(&[3.0, -4.0]), 1);
    assert_eq!(product, bytes(&[11.0, 2.0]));
}

#[test]
fn the_index_of_the_extreme_is_kept_and_of_equal_values_the_smaller_index() {
    let pairs = |pairs: &[(f64, i32)]| {
        let one = |(value, index): &(f64, i32)| [&value.to_ne_bytes()[..], &index.to_ne_bytes(), &[0xee; 4]].concat();
        pairs.iter().flat_map(one).collect::<Vec<u8>>()
    };
    let element = predefined(c::MPI_DOUBLE_INT).0.element().unwrap();
    let a = pairs(&[(1.0, 5), (2.0, 5), (3.0, 5), (3.0, 9)]);
    let b = pairs(&[(2.0, 7), (1.0, 7), (3.0, 7), (3.0, 7)]);
    let least = pairs(&[(1.0, 5), (1.0, 7), (3.0, 5), (3.0, 7)]);
    let greatest = pairs(&[(2.0, 7), (2.0, 5), (3.0, 5), (3.0, 7)]);
    assert_eq!(apply(&reduction(Builtin::MinLoc, element).unwrap(), &a, &b, 4), least);
    assert_eq!(apply(&reduction(Builtin::MaxLoc, element).unwrap(), &a, &b, 4), greatest);
}

#[test]
fn every_operation_of_the_standard_is_computed_except_on_16_and_128_bit_numbers() {
    let odd = [c::MPI_REAL2, c::MPI_COMPLEX4, c::MPI_REAL16, c::MPI_COMPLEX32];
    let mut allowed = 0;
    for element in Element::all() {
        for op in Builtin::all() {
            let error = reduction(op, element).err();
            let unsupported = odd.contains(&element.handle().0)
                || (!cfg!(target_arch = "x86_64") && element.name().contains("LONG_DOUBLE"));
            let expected = match op.accepts(element.class()) {
                false => Some(c::MPI_ERR_OP),
                true if unsupported => Some(c::MPI_ERR_UNSUPPORTED_OPERATION),
                true => None,
            };
            assert_eq!(error.map(|error| error.class), expected, "{} of {}", op.name(), element.name());
            allowed += usize::from(expected.is_none());
        }
    }
    assert!(allowed > 300, "{allowed}");
    let classes =
        |op: Builtin| Element::all().filter(|one| op.accepts(one.class())).map(Element::class).collect::<Vec<_>>();
    assert!(
        classes(Builtin::LogicalAnd)
            .iter()
            .all(|class| matches!(class, Class::CInteger | Class::Logical | Class::MultiLanguage))
    );
    let text = reduction(Builtin::Sum, predefined(c::MPI_WCHAR).0.element().unwrap()).unwrap_err().text;
    assert_eq!(text, "MPI_SUM is not defined for MPI_WCHAR");
}

#[test]
fn characters_of_c_are_numbers_as_in_other_libraries() {
    let char = predefined(c::MPI_CHAR).0.element().unwrap();
    let bytes = |values: &[i8]| values.iter().map(|value| value.to_ne_bytes()[0]).collect::<Vec<u8>>();
    let (a, b) = (bytes(&[-3, 5, 0, 12]), bytes(&[2, 7, 0, -128]));
    for (op, expected) in [
        (Builtin::Max, [2, 7, 0, 12]),
        (Builtin::Min, [-3, 5, 0, -128]),
        (Builtin::Sum, [-1, 12, 0, -116]),
        (Builtin::LogicalAnd, [1, 1, 0, 1]),
        (Builtin::BitOr, [-1, 7, 0, -116]),
    ] {
        assert_eq!(apply(&reduction(op, char).unwrap(), &a, &b, 4), bytes(&expected), "{}", op.name());
    }
}

#[test]
fn derived_datatypes_need_a_user_defined_operation() {
    let int = TypeRef::Predefined(predefined(c::MPI_INT).0);
    let two = Datatype::contiguous(Form::Int, 2, &int).unwrap();
    let error = Reduction::new(&OpRef::Builtin(Builtin::Sum), &two, DatatypeHandle::NULL).unwrap_err();
    assert_eq!(error.class, c::MPI_ERR_OP);
}

unsafe extern "C" fn append(input: *mut i32, inout: *mut i32, len: *mut c_int, datatype: *mut DatatypeHandle) {
    // SAFETY: the test passes `len` pairs.
    unsafe {
        assert_eq!(*datatype, DatatypeHandle(77));
        for index in 0..*len as usize * 2 {
            *inout.add(index) += 10 * *input.add(index);
        }
    }
}

unsafe extern "C" fn count(_: *mut i32, inout: *mut i32, len: *mut i64, _: *mut DatatypeHandle) {
    // SAFETY: the test passes one pair at least.
    unsafe { *inout = *len as i32 };
}

#[test]
fn a_user_function_receives_the_elements_their_number_and_the_datatype() {
    let mut ops = Ops::default();
    let (plain, large) = (append as *const c_void, count as *const c_void);
    let (plain, large) = (ops.create(plain, false, false).unwrap(), ops.create(large, true, true).unwrap());
    let int = TypeRef::Predefined(predefined(c::MPI_INT).0);
    let two = Datatype::contiguous(Form::Int, 2, &int).unwrap();
    let input = [1, 2, 3, 4];
    let mut inout = [5, 6, 7, 8];
    let op = ops.resolve(plain).unwrap();
    ops.free(plain).unwrap();
    assert_eq!(ops.resolve(plain).unwrap_err().text, "the operation has been freed");
    let reduction = Reduction::new(&op, &two, DatatypeHandle(77)).unwrap();
    assert!(reduction.calls_user() && !reduction.commutes());
    // SAFETY: two pairs each.
    unsafe { reduction.apply(input.as_ptr().cast(), inout.as_mut_ptr().cast(), 2) };
    assert_eq!(inout, [15, 26, 37, 48]);

    let reduction = Reduction::new(&ops.resolve(large).unwrap(), &two, DatatypeHandle(77)).unwrap();
    // SAFETY: two pairs each.
    unsafe { reduction.apply(input.as_ptr().cast(), inout.as_mut_ptr().cast(), 2) };
    assert!(reduction.commutes() && inout[0] == 2);
}

#[test]
fn invalid_operation_handles_are_reported() {
    let mut ops = Ops::default();
    let class = |handle| Ops::default().resolve(OpHandle(handle)).unwrap_err().class;
    assert_eq!([class(c::MPI_OP_NULL), class(0), class(0x2f), class(usize::MAX)], [c::MPI_ERR_OP; 4]);
    assert_eq!(ops.free(OpHandle(c::MPI_SUM)).unwrap_err().text, "MPI_SUM cannot be freed");
    assert_eq!(ops.create(std::ptr::null(), false, true).unwrap_err().class, c::MPI_ERR_ARG);
}
