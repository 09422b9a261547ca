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
fn words_have_their_meaning() {
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
fn a_file_is_the_clients() {
    let option: MapByOption = "seq:File=./My hosts:oversubscribe".parse().unwrap();
    assert_eq!((option.map_by.to_string().as_str(), option.file.as_deref()), ("seq:oversubscribe", Some("./My hosts")));
    let error = map_by("rankfile:file=r").unwrap_err();
    assert_eq!(error.text, "--map-by rankfile:file=r: the file is for the client to read, not for a daemon");
}

#[test]
fn a_mistake_is_shown_with_its_place_what_was_meant_and_what_is_accepted() {
    assert_eq!(
        map_by("pakage:pe=2").unwrap_err().text,
        "there is no mapping by `pakage`; did you mean `package`?\n  \
           pakage:pe=2\n  \
           ^\n\
         accepted: slot, node, hwthread, core, l1cache, l2cache, l3cache, numa, package, ppr:N:OBJECT, seq, rankfile, \
         pe-list=CPUS\n  \
           then any of :pe=N :span :nolocal :hwtcpus :corecpus :oversubscribe :nooversubscribe (and :ordered behind pe-list)"
    );
    let text = map_by("slot:pe=two").unwrap_err().text;
    assert_eq!(text.lines().nth(2), Some("          ^"));
    let text = map_by("slot:\u{1b}[31mé:é").unwrap_err().text;
    assert!(!text.lines().nth(1).unwrap_or_default().contains('\u{1b}'), "{text}");
}

#[test]
fn every_wrong_mapping_is_answered() {
    let vectors = [
        ("cores", "there is no mapping by `cores`; did you mean `core`?"),
        ("nde", "there is no mapping by `nde`; did you mean `node`?"),
        ("board", "there is no mapping by `board`; write `package`"),
        ("bynode", "there is no mapping by `bynode`; write `node`"),
        (
            "device=gpu",
            "there is no mapping by `device=gpu`; write --gpus-per-rank N: ranks are then placed near their GPUs",
        ),
        ("galaxy", "there is no mapping by `galaxy`"),
        ("span", "`span` is a modifier: a colon goes before it"),
        ("pe=2", "`pe=2` is a modifier: a colon goes before it"),
        ("oversubscribe", "`oversubscribe` is a modifier: a colon goes before it"),
        ("ppr", "ppr takes the number of ranks per object, from 1 up, not ``"),
        ("ppr:0:node", "ppr takes the number of ranks per object, from 1 up, not `0`"),
        ("ppr:node", "ppr takes the number of ranks per object, from 1 up, not `node`"),
        ("ppr:2", "ppr takes an object behind its number"),
        ("ppr:2:slot", "`slot` is no object that has ranks; write `node`"),
        ("ppr:2:pakage", "`pakage` is no object that has ranks; did you mean `package`?"),
        ("pe-list", "there is no mapping by `pe-list`; it takes cpus: `pe-list=0,2,4-7`"),
        ("pe-list=", "`` is no cpu and no range of cpus"),
        ("pe-list=0,,1", "`` is no cpu and no range of cpus"),
        ("pe-list=0,a", "`a` is no cpu and no range of cpus"),
        ("pe-list=99999", "`99999` is no cpu and no range of cpus"),
        ("pe-list=0-3,2", "cpu 2 is listed twice"),
        ("pe-list=7-4", "the range 7-4 runs backwards: write 4-7"),
        ("slot:", "a modifier is missing behind the colon"),
        (":", "a modifier is missing behind the colon"),
        ("slot:spam", "there is no modifier `spam`; did you mean `span`?"),
        ("slot:oversubscibe", "there is no modifier `oversubscibe`; did you mean `oversubscribe`?"),
        ("slot:inherit", "there is no modifier `inherit`; leave it out: a job inherits no placement"),
        ("slot:if-supported", "there is no modifier `if-supported`; it belongs to --bind-to"),
        ("slot:ordered", "there is no modifier `ordered`; it goes with `pe-list=…`"),
        ("slot:pe", "there is no modifier `pe`; it takes a number: `pe=2`"),
        ("slot:pe=0", "pe takes the number of cpus per rank, 1 to 16384, not `0`"),
        ("slot:pe=+1", "pe takes the number of cpus per rank, 1 to 16384, not `+1`"),
        ("slot:pe=1:pe=2", "pe is given twice"),
        ("slot:span:span", "span is given twice"),
        ("slot:oversubscribe:nooversubscribe", "oversubscribe is given twice"),
        ("slot:hwtcpus:corecpus", "the kind of cpus is given twice"),
        ("pe-list=1:ordered:ordered", "ordered is given twice"),
        ("rankfile:pe=2", "`pe=2` means nothing with `rankfile`"),
        ("seq:span", "`span` means nothing with `seq`"),
        ("seq:nolocal", "`nolocal` means nothing with `seq`"),
        ("slot:file=x", "`file=x` means nothing with `slot`"),
        ("seq:file=", "file takes a name"),
        (":file=x", "`file=x` means nothing with `slot`"),
    ];
    for (text, expected) in vectors {
        let error = text.parse::<MapByOption>().unwrap_err();
        assert_eq!(first_line(&error), expected, "{text:?}");
    }
}

#[test]
fn every_other_wrong_policy_is_answered() {
    fn line<T: std::str::FromStr<Err = PolicyError> + std::fmt::Debug>(text: &str) -> String {
        first_line(&text.parse::<T>().unwrap_err()).to_owned()
    }
    assert_eq!(line::<RankBy>("slots"), "there is no ranking by `slots`; did you mean `slot`?");
    let expected = "ranks are not numbered by `socket`: write `span`, one per object in turn, or `fill`";
    assert_eq!(line::<RankBy>("socket"), expected);
    assert_eq!(line::<RankBy>(""), "there is no ranking by ``");
    assert_eq!(line::<BindTo>("core:2"), "`2` cores per rank are said by the mapping: --map-by slot:pe=2");
    let expected = "`4` threads per rank are said by the mapping: --map-by slot:pe=4:hwtcpus";
    assert_eq!(line::<BindTo>("hwthread:4"), expected);
    assert_eq!(line::<BindTo>("socket:2"), "a rank is bound to one package, not to `2`");
    assert_eq!(line::<BindTo>("rr"), "there is no binding to `rr`; write `hwthread`, or `core`");
    let expected = "there is no binding to `machine`; write `none`: a rank may then run on all of its node";
    assert_eq!(line::<BindTo>("machine"), expected);
    assert_eq!(line::<BindTo>("coer"), "there is no binding to `coer`; did you mean `core`?");
    let expected = "there is no modifier `overload-alowed`; did you mean `overload-allowed`?";
    assert_eq!(line::<BindTo>("core:overload-alowed"), expected);
    let expected = "there is no modifier `report`; leave it out: `rsctl plan` shows where ranks are bound";
    assert_eq!(line::<BindTo>("core:report"), expected);
    let expected = "`no-overload` comes after the same or its opposite";
    assert_eq!(line::<BindTo>("core:overload-allowed:no-overload"), expected);
    assert_eq!(line::<BindTo>(""), "there is no binding to ``");
    assert_eq!(line::<MemBind>("locl"), "there is no memory binding `locl`; did you mean `local`?");
    assert_eq!(line::<MemBind>("numa"), "there is no memory binding `numa`; write `local`");
    assert_eq!(
        line::<Compat>("ompi4"),
        "nobody's answers are known as `ompi4`; of Open MPI there is only 5: `openmpi5`"
    );
    assert_eq!(line::<Compat>("hidra"), "nobody's answers are known as `hidra`; did you mean `hydra`?");
}

#[test]
fn texts_make_a_policy_and_a_mistake_names_its_option() {
    assert_eq!(Policy::from_texts("", "", "", "", "", 0), Ok(Policy::default()));
    let policy = Policy::from_texts("numa:pe=2", "span", "core", "local", "hydra", 2).unwrap();
    assert_eq!(policy.map_by.to_string(), "numa:pe=2");
    assert_eq!((policy.rank_by, policy.mem_bind), (Some(RankBy::Span), Some(MemBind::Local)));
    assert_eq!((policy.compat, policy.gpus_per_rank), (Compat::Hydra, 2));
    let error = Policy::from_texts("", "", "cor", "", "", 0).unwrap_err();
    assert_eq!(first_line(&error), "--bind-to: there is no binding to `cor`; did you mean `core`?");
    let error = Policy::from_texts("rankfile", "slot", "", "", "", 0).unwrap_err();
    assert_eq!(error.text, "--rank-by slot: a rankfile numbers the ranks itself; leave out --rank-by");
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
    fn any_text_is_read_or_refused_in_four_lines_or_more(text in "[a-ps-z0-9:=,é\\-]{0,24}") {
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
fn the_short_policies_survive_their_texts() {
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
