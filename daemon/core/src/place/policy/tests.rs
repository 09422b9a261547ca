use proptest::prelude::*;

use super::super::topology::Kind;
use super::*;

fn first_line(error: &PolicyError) -> &str {
    error.text.lines().next().unwrap_or_default()
}

fn map_by(text: &str) -> Result<MapBy, PolicyError> {
    text.parse()
}

#[test]
fn mappings_of_any_spelling_have_one_canonical_text() {
    let vectors = [
        ("", ""),
        ("slot", "slot"),
        ("NODE", "node"),
        ("socket", "package"),
        ("Skt:PE=2", "package:pe=2"),
        ("l1", "l1cache"),
        ("L2Cache", "l2cache"),
        ("l3:SPAN:pe=4", "l3cache:pe=4:span"),
        ("hwt", "hwthread"),
        ("core:corecpus", "core"),
        ("core:hwtcpus:nolocal:span", "core:span:nolocal:hwtcpus"),
        (":oversubscribe", ":oversubscribe"),
        ("node:NoOversubscribe", "node:nooversubscribe"),
        ("ppr:2:socket:pe=3", "ppr:2:package:pe=3"),
        ("PPR:1:Node", "ppr:1:node"),
        ("seq", "seq"),
        ("rankfile:oversubscribe", "rankfile:oversubscribe"),
        ("pe-list=0,2,4-7,9,10", "pe-list=0,2,4-7,9-10"),
        ("PE-LIST=7,3-4:Ordered:hwtcpus", "pe-list=7,3-4:ordered:hwtcpus"),
    ];
    for (text, canonical) in vectors {
        assert_eq!(map_by(text).map(|map_by| map_by.to_string()), Ok(canonical.to_owned()), "{text:?}");
    }
}

#[test]
fn words_are_parsed_to_their_meaning() {
    assert_eq!(
        map_by("ppr:2:numa:pe=3:span:oversubscribe"),
        Ok(MapBy {
            directive: Some(Directive::Ppr { count: 2, per: Some(Kind::Numa) }),
            pe: Some(3),
            span: true,
            oversubscribe: Some(true),
            ..MapBy::default()
        })
    );
    let listed = Directive::PeList { cpus: vec![5, 1, 2], ordered: true };
    assert_eq!(map_by("pe-list=5,1-2:ordered").unwrap().directive, Some(listed));
    let bound = BindTo { kind: Some(Kind::L3), overload_allowed: true, if_supported: true };
    assert_eq!("L3Cache:Overload-Allowed:if-supported".parse(), Ok(bound));
    assert_eq!("core:no-overload".parse::<BindTo>().map(|bind_to| bind_to.to_string()), Ok("core".to_owned()));
    assert_eq!("none".parse::<BindTo>().unwrap().kind, None);
    assert_eq!("Prefer".parse(), Ok(MemBind::Preferred));
    assert_eq!("MPICH".parse(), Ok(Compat::Hydra));
}

#[test]
fn a_file_is_accepted_only_from_the_client() {
    let option: MapByOption = "seq:File=./My hosts:oversubscribe".parse().unwrap();
    assert_eq!((option.map_by.to_string().as_str(), option.file.as_deref()), ("seq:oversubscribe", Some("./My hosts")));
    let error = map_by("rankfile:file=r").unwrap_err();
    assert_eq!(error.text, "--map-by rankfile:file=r: only rsctl reads files; a daemon does not accept file=");
}

#[test]
fn a_mistake_shows_its_position_the_likely_word_and_the_accepted_form() {
    assert_eq!(
        map_by("pakage:pe=2").unwrap_err().text,
        "unknown mapping `pakage`; did you mean `package`?\n  \
           pakage:pe=2\n  \
           ^\n\
         accepted: slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package, ppr:N:OBJECT, seq, rankfile, \
         pe-list=CPUS\n  \
           then any of :pe=N :span :nolocal :hwtcpus :corecpus :oversubscribe :nooversubscribe (and :ordered after pe-list)"
    );
    let text = map_by("slot:pe=two").unwrap_err().text;
    assert_eq!(text.lines().nth(2), Some("          ^"));
    let text = map_by("slot:\u{1b}[31mé:é").unwrap_err().text;
    assert!(!text.lines().nth(1).unwrap_or_default().contains('\u{1b}'), "{text}");
}

#[test]
fn every_wrong_mapping_has_its_own_message() {
    let vectors = [
        ("cores", "unknown mapping `cores`; did you mean `core`?"),
        ("nde", "unknown mapping `nde`; did you mean `node`?"),
        ("board", "unknown mapping `board`; write `package`"),
        ("bynode", "unknown mapping `bynode`; write `node`"),
        ("device=gpu", "unknown mapping `device=gpu`; write --gpus-per-rank N: ranks are then placed near their GPUs"),
        ("galaxy", "unknown mapping `galaxy`"),
        ("span", "`span` is a modifier: write `:span`"),
        ("pe=2", "`pe=2` is a modifier: write `:pe=2`"),
        ("oversubscribe", "`oversubscribe` is a modifier: write `:oversubscribe`"),
        ("ppr", "ppr needs the number of ranks per object, from 1 up, not ``"),
        ("ppr:0:node", "ppr needs the number of ranks per object, from 1 up, not `0`"),
        ("ppr:node", "ppr needs the number of ranks per object, from 1 up, not `node`"),
        ("ppr:2", "ppr needs an object after its number"),
        ("ppr:2:slot", "unknown object `slot`; write `node`"),
        ("ppr:2:pakage", "unknown object `pakage`; did you mean `package`?"),
        ("pe-list", "unknown mapping `pe-list`; it needs cpus: `pe-list=0,2,4-7`"),
        ("pe-list=", "`` is not a cpu or a range of cpus"),
        ("pe-list=0,,1", "`` is not a cpu or a range of cpus"),
        ("pe-list=0,a", "`a` is not a cpu or a range of cpus"),
        ("pe-list=99999", "`99999` is not a cpu or a range of cpus"),
        ("pe-list=0-3,2", "cpu 2 is listed twice"),
        ("pe-list=7-4", "the range 7-4 is reversed: write 4-7"),
        ("slot:", "missing modifier after the colon"),
        (":", "missing modifier after the colon"),
        ("slot:spam", "unknown modifier `spam`; did you mean `span`?"),
        ("slot:oversubscibe", "unknown modifier `oversubscibe`; did you mean `oversubscribe`?"),
        ("slot:inherit", "unknown modifier `inherit`; omit it: a job inherits no placement"),
        ("slot:if-supported", "unknown modifier `if-supported`; it belongs to --bind-to"),
        ("slot:ordered", "unknown modifier `ordered`; it belongs to `pe-list=…`"),
        ("slot:pe", "unknown modifier `pe`; it needs a number: `pe=2`"),
        ("slot:pe=0", "pe needs the number of cpus per rank, 1 to 16384, not `0`"),
        ("slot:pe=+1", "pe needs the number of cpus per rank, 1 to 16384, not `+1`"),
        ("slot:pe=1:pe=2", "pe is given twice"),
        ("slot:span:span", "span is given twice"),
        ("slot:oversubscribe:nooversubscribe", "oversubscribe is given twice"),
        ("slot:hwtcpus:corecpus", "the kind of cpus is given twice"),
        ("pe-list=1:ordered:ordered", "ordered is given twice"),
        ("rankfile:pe=2", "`pe=2` cannot be used with `rankfile`"),
        ("seq:span", "`span` cannot be used with `seq`"),
        ("seq:nolocal", "`nolocal` cannot be used with `seq`"),
        ("slot:file=x", "`file=x` cannot be used with `slot`"),
        ("seq:file=", "file needs a name"),
        (":file=x", "`file=x` cannot be used with `slot`"),
    ];
    for (text, expected) in vectors {
        let error = text.parse::<MapByOption>().unwrap_err();
        assert_eq!(first_line(&error), expected, "{text:?}");
    }
}

#[test]
fn every_other_wrong_policy_has_its_own_message() {
    fn line<T: std::str::FromStr<Err = PolicyError> + std::fmt::Debug>(text: &str) -> String {
        first_line(&text.parse::<T>().unwrap_err()).to_owned()
    }
    assert_eq!(line::<RankBy>("slots"), "unknown ranking `slots`; did you mean `slot`?");
    let expected = "ranks cannot be numbered by `socket`: write `span`, one per object in turn, or `fill`";
    assert_eq!(line::<RankBy>("socket"), expected);
    assert_eq!(line::<RankBy>(""), "unknown ranking ``");
    assert_eq!(line::<BindTo>("core:2"), "the mapping sets the cores per rank: use --map-by slot:pe=2");
    let expected = "the mapping sets the threads per rank: use --map-by slot:pe=4:hwtcpus";
    assert_eq!(line::<BindTo>("hwthread:4"), expected);
    assert_eq!(line::<BindTo>("socket:2"), "a rank is bound to one package, not to `2`");
    assert_eq!(line::<BindTo>("rr"), "unknown binding `rr`; write `hwthread`, or `core`");
    let expected = "unknown binding `machine`; write `none`: a rank may then run on all of its node";
    assert_eq!(line::<BindTo>("machine"), expected);
    assert_eq!(line::<BindTo>("coer"), "unknown binding `coer`; did you mean `core`?");
    let expected = "unknown modifier `overload-alowed`; did you mean `overload-allowed`?";
    assert_eq!(line::<BindTo>("core:overload-alowed"), expected);
    let expected = "unknown modifier `report`; omit it: `rsctl plan` shows where ranks are bound";
    assert_eq!(line::<BindTo>("core:report"), expected);
    let expected = "`no-overload` repeats or contradicts an earlier modifier";
    assert_eq!(line::<BindTo>("core:overload-allowed:no-overload"), expected);
    assert_eq!(line::<BindTo>(""), "unknown binding ``");
    assert_eq!(line::<MemBind>("locl"), "unknown memory binding `locl`; did you mean `local`?");
    assert_eq!(line::<MemBind>("numa"), "unknown memory binding `numa`; write `local`");
    assert_eq!(line::<Compat>("ompi4"), "unknown launcher `ompi4`; only Open MPI 5 is known: write `openmpi5`");
    assert_eq!(line::<Compat>("hidra"), "unknown launcher `hidra`; did you mean `hydra`?");
}

#[test]
fn a_policy_is_parsed_from_texts_and_a_mistake_names_its_option() {
    assert_eq!(Policy::from_texts("", "", "", "", "", 0), Ok(Policy::default()));
    let policy = Policy::from_texts("numa:pe=2", "span", "core", "local", "hydra", 2).unwrap();
    assert_eq!(policy.map_by.to_string(), "numa:pe=2");
    assert_eq!((policy.rank_by, policy.mem_bind), (Some(RankBy::Span), Some(MemBind::Local)));
    assert_eq!((policy.compat, policy.gpus_per_rank), (Compat::Hydra, 2));
    let error = Policy::from_texts("", "", "cor", "", "", 0).unwrap_err();
    assert_eq!(first_line(&error), "--bind-to: unknown binding `cor`; did you mean `core`?");
    let error = Policy::from_texts("rankfile", "slot", "", "", "", 0).unwrap_err();
    assert_eq!(error.text, "--rank-by slot: a rankfile numbers the ranks itself; omit --rank-by");
}

fn any_kind() -> impl Strategy<Value = Kind> {
    prop::sample::select(Kind::ALL.to_vec())
}

fn any_directive() -> impl Strategy<Value = Directive> {
    let cpus = prop::collection::btree_set(0u32..64, 1..20)
        .prop_flat_map(|cpus| Just(cpus.into_iter().collect::<Vec<_>>()).prop_shuffle());
    prop_oneof![
        Just(Directive::Slot),
        Just(Directive::Node),
        any_kind().prop_map(Directive::Object),
        (1u32..9, prop::option::of(any_kind())).prop_map(|(count, per)| Directive::Ppr { count, per }),
        Just(Directive::Seq),
        Just(Directive::Rankfile),
        (cpus, any::<bool>()).prop_map(|(cpus, ordered)| Directive::PeList { cpus, ordered }),
    ]
}

prop_compose! {
    fn any_mapping()(
        directive in prop::option::of(any_directive()),
        pe in prop::option::of(1u32..9),
        flags in any::<[bool; 3]>(),
        oversubscribe in any::<Option<bool>>(),
    ) -> MapBy {
        let [span, nolocal, hwtcpus] = flags;
        let listed = matches!(directive, Some(Directive::Seq | Directive::Rankfile));
        let pe = pe.filter(|_| directive != Some(Directive::Rankfile));
        MapBy { directive, pe, span: span && !listed, nolocal: nolocal && !listed, hwtcpus, oversubscribe }
    }
}

proptest! {
    #[test]
    fn a_mapping_survives_its_text(mapping in any_mapping()) {
        prop_assert_eq!(map_by(&mapping.to_string()), Ok(mapping.clone()));
        prop_assert_eq!(map_by(&mapping.to_string().to_ascii_uppercase()), Ok(mapping));
    }

    #[test]
    fn a_binding_survives_its_text(kind in prop::option::of(any_kind()), overload_allowed: bool, if_supported: bool) {
        let bind_to = BindTo { kind, overload_allowed, if_supported };
        prop_assert_eq!(bind_to.to_string().parse(), Ok(bind_to));
    }

    #[test]
    fn any_text_is_parsed_or_refused_in_at_least_four_lines(text in "[a-ps-z0-9:=,é\\-]{0,24}") {
        if let Err(error) = text.parse::<MapByOption>() {
            prop_assert!(error.text.lines().count() >= 4);
        }
        if let Ok(mapping) = map_by(&text) {
            prop_assert_eq!(map_by(&mapping.to_string()), Ok(mapping));
        }
        if let Ok(bind_to) = text.parse::<BindTo>() {
            prop_assert_eq!(bind_to.to_string().parse(), Ok(bind_to));
        }
    }
}

#[test]
fn all_other_policies_survive_their_text() {
    for rank_by in [RankBy::Slot, RankBy::Node, RankBy::Fill, RankBy::Span] {
        assert_eq!(rank_by.to_string().parse(), Ok(rank_by));
    }
    for mem_bind in [MemBind::None, MemBind::Local, MemBind::Preferred, MemBind::Interleave] {
        assert_eq!(mem_bind.to_string().parse(), Ok(mem_bind));
    }
    for compat in [Compat::Rsd, Compat::OpenMpi5, Compat::Hydra] {
        assert_eq!(compat.to_string().parse(), Ok(compat));
    }
}
