/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a rank that has joined says of itself now and then, and what answers about its membership mean (PROTOCOL §9, §11.2).
 *
 * Where silent ranks are taken for gone, one that only waits, or computes, must not be: it repeats its JOIN, and the answer tells
 * who is.  So does, now and then, every rank that gets no results: it may have been told that its job has ended, and not have heard
 * it.  Who goes on to the next generation asks for it under a new nonce, and is in the old one until the switch answers: others
 * may need what it holds.  What comes here was intact and, of a job with a key, proven.
 */
#ifndef INAGG_CORE_MEMBERSHIP_H
#define INAGG_CORE_MEMBERSHIP_H

#include <inagg/core/mac.h>
#include <inagg/core/packet.h>
#include <inagg/core/types.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

#define INAGG_PRESENT_NS	250000000ULL	/* between JOINs that say that this rank is there */
#define INAGG_URGENT_NS		20000000ULL	/* between those that want an answer */
#define INAGG_DOUBT_NS		1000000000ULL	/* between those of a rank that gets no results */
#define INAGG_LEAST_EXCLUDE_MS	1000	/* ranks say that they are there four times in it */
#define INAGG_NEVER_SAYS	(~0ULL)

struct inagg_membership {
	__u64	nonce;		/* names this incarnation of the worker */
	__u64	next_nonce;	/* its name in the next generation, while it asks to be in it; 0: it does not */
	__u64	challenge;	/* of the switch, the latest */
	__u64	said_ns;	/* when this rank last said that it is there */
	__u64	excluded;	/* bitmaps of ranks, as the switch last said */
	__u64	temporary;
	__u64	permanent;	/* also those that are excluded */
	__u8	flags;		/* enum inagg_join_flag, of its latest answer */
	__u8	doubted;	/* the switch may not know this rank */
	__u8	reserved[6];
};

/* What to say: both, perhaps. */
enum inagg_saying {
	INAGG_SAY_PRESENT	= 1 << 0,	/* JOIN with `nonce` */
	INAGG_SAY_NEXT		= 1 << 1,	/* JOIN with `next_nonce` and INAGG_JOIN_RENEW */
};

/* What an answer means. */
enum inagg_news {
	INAGG_NO_NEWS,
	INAGG_CONFIRMED,	/* this rank is a member; flags and excluded ranks are those of now */
	INAGG_RENEWED,		/* ... in the next generation */
	INAGG_CHALLENGED,	/* say it again, with the challenge */
	INAGG_ENDED,		/* it is none any more */
};

/* What a CONFIG, @h its header, says of the ranks of a job of @size. */
INAGG_INLINE void inagg_membership_note(struct inagg_membership *m, __u32 size, const struct inagg_hdr *h,
					const struct inagg_config *c)
{
	__u64 all = inagg_all_ranks(size), named = c->group_port ? 0 : all;	/* else a group's address is there */

	m->excluded = all & ~inagg_swap64(h->contributors);
	m->temporary = named & inagg_swap64(c->stragglers.temporary);
	m->permanent = (named & inagg_swap64(c->stragglers.permanent)) | m->excluded;
	m->flags = c->flags;
}

/** The CONFIG that answers the first JOIN has come, for a job of @size ranks. */
INAGG_INLINE void inagg_membership_begin(struct inagg_membership *m, __u32 size, const struct inagg_hdr *h,
					 const struct inagg_config *c, __u64 now)
{
	inagg_membership_note(m, size, h, c);
	m->said_ns = now;
}

/** When to say something again; INAGG_NEVER_SAYS. */
INAGG_INLINE __u64 inagg_membership_due(const struct inagg_membership *m)
{
	if (m->next_nonce || m->doubted)
		return m->said_ns + INAGG_URGENT_NS;
	return m->flags & INAGG_JOIN_WATCHED ? m->said_ns + INAGG_PRESENT_NS : INAGG_NEVER_SAYS;
}

/** That time has come: bitmap of enum inagg_saying. */
INAGG_INLINE int inagg_membership_say(struct inagg_membership *m, __u64 now)
{
	int what = m->doubted || m->flags & INAGG_JOIN_WATCHED ? INAGG_SAY_PRESENT : 0;

	m->said_ns = now;
	m->doubted = 0;
	return what | (m->next_nonce ? INAGG_SAY_NEXT : 0);
}

/** Results that this rank waits for do not come: whoever has the job may have ended it. */
INAGG_INLINE void inagg_membership_doubt(struct inagg_membership *m, __u64 now)
{
	if (now >= m->said_ns + INAGG_DOUBT_NS)
		m->doubted = 1;
}

/** Ask, from now on, to be in the next generation as @nonce. */
INAGG_INLINE void inagg_membership_renew(struct inagg_membership *m, __u64 nonce)
{
	m->next_nonce = nonce;
	m->said_ns = 0;
}

/** Does an excluded rank wait to be taken back? */
INAGG_INLINE int inagg_membership_returning(const struct inagg_membership *m)
{
	return (m->flags & INAGG_JOIN_RETURNING) != 0;
}

/** Is what an answer says about the rank with @nonce said about this one? */
INAGG_INLINE int inagg_membership_is(const struct inagg_membership *m, __u64 nonce)
{
	return nonce && (nonce == m->nonce || nonce == m->next_nonce);
}

/** A CONFIG, @h its header: CONFIRMED; or RENEWED, and @job is that of the next generation; or NO_NEWS. */
INAGG_INLINE int inagg_membership_config(struct inagg_membership *m, struct inagg_job_config *job, const struct inagg_hdr *h,
					 const struct inagg_config *c)
{
	struct inagg_job_config next = *job;
	__u64 nonce = inagg_swap64(c->nonce);

	if (!inagg_membership_is(m, nonce) || inagg_config_accept(&next, h, c) || next.elements != job->elements)
		return INAGG_NO_NEWS;
	inagg_membership_note(m, job->size, h, c);
	if (nonce == m->nonce)
		return INAGG_CONFIRMED;
	*job = next;
	m->nonce = m->next_nonce;
	m->next_nonce = 0;
	return INAGG_RENEWED;
}

/** A REFUSED of @job, @h its header: CHALLENGED, ENDED or NO_NEWS. */
INAGG_INLINE int inagg_membership_refused(struct inagg_membership *m, const struct inagg_job_config *job,
					  const struct inagg_hdr *h, const struct inagg_refusal *r)
{
	__u64 nonce = inagg_swap64(r->nonce), challenge = inagg_hdr_challenge(h);
	__u32 reason = inagg_swap32(h->slot);

	if (reason == INAGG_R_CHALLENGE) {
		if (!inagg_membership_is(m, nonce) || challenge == m->challenge)
			return INAGG_NO_NEWS;
		m->challenge = challenge;
		m->doubted = !m->next_nonce;
		m->said_ns = 0;
		return INAGG_CHALLENGED;
	}
	if (reason == INAGG_R_FORMING)	/* late, since this rank was let in after all */
		return INAGG_NO_NEWS;
	/* for who asks for the next generation that may mean that it has begun: then its next name is known */
	if (m->next_nonce && (reason == INAGG_R_REPLACED || reason == INAGG_R_JOB))
		return nonce == m->next_nonce ? INAGG_ENDED : INAGG_NO_NEWS;
	if (nonce == m->nonce)
		return INAGG_ENDED;
	/* whoever says that need not be the switch: what it answers to our nonce counts */
	if (!nonce && reason == INAGG_R_JOB && inagg_swap16(h->generation) == job->generation)
		m->doubted = 1;
	return INAGG_NO_NEWS;
}

#endif /* INAGG_CORE_MEMBERSHIP_H */
