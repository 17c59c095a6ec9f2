// SPDX-License-Identifier: GPL-2.0-only
/* Socket options of level SOL_INAGG. */
#include <linux/string.h>

#include "af_inagg.h"

static const char *const algorithms[INAGG_ALGORITHMS] = {
	[INAGG_SWITCHML] = "switchml",
	[INAGG_TRIO] = "trio",
	[INAGG_ATP] = "atp",
	[INAGG_PANAMA] = "panama",
	[INAGG_CANARY] = "canary",
};

#define ALGORITHM_NAME_MAX	16
#define HISTORY_SHARE		32	/* of memory_limit, a socket's at most */
#define RTO_MIN_LEAST		100	/* microseconds: nobody shall keep a CPU busy with timers */

/** inagg_history_limit() - how many of @wanted bytes of results a socket may keep: the others need memory, too */
u32 inagg_history_limit(const struct inagg_sock *isk, u32 wanted)
{
	u64 limit = READ_ONCE(inagg_memory_limit) / HISTORY_SHARE;

	limit = min_t(u64, limit, READ_ONCE(inagg_pernet(sock_net(&isk->sk))->buffer_max));
	return min_t(u64, wanted, limit);
}

/** inagg_check_tensor_type() - 0, or -EINVAL for an unknown type, operator or flag, or an average of integers */
int inagg_check_tensor_type(const struct inagg_tensor_type *type)
{
	if (type->dtype >= INAGG_DTYPES || type->op >= INAGG_OPS ||
	    type->flags & ~(INAGG_TENSOR_WHOLE | INAGG_TENSOR_RENEW | INAGG_TENSOR_UNVERIFIED))
		return -EINVAL;
	return type->op == INAGG_AVG && type->dtype == INAGG_INT32 ? -EINVAL : 0;
}

static int set_algorithm(struct inagg_sock *isk, const char *name)
{
	int number = match_string(algorithms, INAGG_ALGORITHMS, name);

	if (number < 0)
		return -ENOENT;	/* as TCP_CONGESTION does */
	if (number != INAGG_SWITCHML && number != INAGG_TRIO)
		return -EPROTONOSUPPORT;
	isk->set.algorithm = number;
	return 0;
}

/* Nobody reads it again. */
static int set_key(struct inagg_sock *isk, const u8 *bytes)
{
	spin_lock_bh(&isk->lock);
	isk->key = inagg_mac_key_of(bytes);
	spin_unlock_bh(&isk->lock);
	return 0;
}

/* Joined, or about to be. */
static bool is_fixed(const struct inagg_sock *isk)
{
	return isk->joined || isk->sk.sk_state == TCP_SYN_SENT;
}

static int set_verify(struct inagg_sock *isk, const u8 *bytes, bool wanted)
{
	int error = 0;

	spin_lock_bh(&isk->lock);
	if (is_fixed(isk)) {	/* the answer may have come since; and what is allocated then depends on this */
		error = -EISCONN;
	} else {
		isk->verify.key = inagg_mac_key_of(bytes);
		isk->verify.wanted = wanted;
	}
	spin_unlock_bh(&isk->lock);
	return error;
}

/* May this option change now? */
static int check_state(const struct inagg_sock *isk, int name)
{
	switch (name) {
	case INAGG_ALGORITHM:
	case INAGG_WINDOW:
	case INAGG_BLOCK:
	case INAGG_RTO_MIN:
	case INAGG_CHECKED:
	case INAGG_KEY:
	case INAGG_VERIFY:
	case INAGG_EXPIRY:
	case INAGG_QUORUM:
	case INAGG_HISTORY:
	case INAGG_EXCLUDE:
		return is_fixed(isk) ? -EISCONN : 0;
	case INAGG_BUFFER:
		return isk->has_memory ? -EBUSY : 0;
	default:
		return 0;
	}
}

static int set_number(struct inagg_sock *isk, int name, int value)
{
	struct inagg_settings *set = &isk->set;

	switch (name) {
	case INAGG_DTYPE:
		if (value < 0 || value >= INAGG_DTYPES)
			return -EINVAL;
		set->tensor.dtype = value;
		return 0;
	case INAGG_OP:
		if (value < 0 || value >= INAGG_OPS)
			return -EINVAL;
		set->tensor.op = value;
		return 0;
	case INAGG_SCALE:
		if (value != INAGG_SCALE_AUTO && (value < -128 || value > 157))
			return -EINVAL;
		set->tensor.scale = value;
		return 0;
	case INAGG_WINDOW:
		if (value < 0)
			return -EINVAL;
		set->window = value;
		return 0;
	case INAGG_BLOCK:
		if (value < 0 || value > INAGG_MAX_ELEMENTS || value % INAGG_CHUNK)
			return -EINVAL;
		set->elements = value;
		return 0;
	case INAGG_RTO_MIN:
		if (value < RTO_MIN_LEAST || value > INAGG_RTO_CEILING_NS / NSEC_PER_USEC)
			return -EINVAL;
		set->rto_min_us = value;
		return 0;
	case INAGG_DEADLINE:
		if (value < 1)
			return -EINVAL;
		set->deadline_ms = value;
		return 0;
	case INAGG_CHECKED:
		if (value != 0 && value != 1)
			return -EINVAL;
		set->checked = value;
		return 0;
	case INAGG_BUFFER:
		if (value < 1)
			return -EINVAL;
		set->buffer = min(value, READ_ONCE(inagg_pernet(sock_net(&isk->sk))->buffer_max));
		return 0;
	case INAGG_EXPIRY:
		if (value < 0)
			return -EINVAL;
		set->expiry_us = value;
		return 0;
	case INAGG_QUORUM:
		if (value < 0 || value > INAGG_MAX_RANKS)
			return -EINVAL;
		set->quorum = value;
		return 0;
	case INAGG_HISTORY:
		if (value < 1)
			return -EINVAL;
		set->history = inagg_history_limit(isk, value);
		return 0;
	case INAGG_EXCLUDE:
		if (value && value < INAGG_LEAST_EXCLUDE_MS)
			return -EINVAL;
		set->exclude_ms = value;
		return 0;
	default:
		return -ENOPROTOOPT;
	}
}

/* What the user wants, before anything is locked: a page of theirs may keep us waiting for as long as they like. */
union option_value {
	int	number;
	char	text[ALGORITHM_NAME_MAX];
	u8	key[INAGG_KEY_BYTES];
};

static int copy_value(int name, sockptr_t from, unsigned int length, union option_value *value)
{
	memset(value, 0, sizeof(*value));
	switch (name) {
	case INAGG_ALGORITHM:
		if (!length)
			return -EINVAL;
		length = min_t(unsigned int, length, sizeof(value->text) - 1);
		break;
	case INAGG_KEY:
	case INAGG_VERIFY:
		if (length && length != sizeof(value->key))
			return -EINVAL;
		break;
	default:
		if (length < sizeof(value->number))
			return -EINVAL;
		length = sizeof(value->number);
	}
	return copy_from_sockptr(value, from, length) ? -EFAULT : 0;
}

static int set_option(struct inagg_sock *isk, int name, const union option_value *value, unsigned int length)
{
	switch (name) {
	case INAGG_ALGORITHM:
		return set_algorithm(isk, value->text);
	case INAGG_KEY:
		return set_key(isk, value->key);
	case INAGG_VERIFY:
		return set_verify(isk, value->key, length);
	default:
		return set_number(isk, name, value->number);
	}
}

int inagg_setsockopt(struct socket *sock, int level, int name, sockptr_t value, unsigned int length)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	union option_value copy;
	int error;

	if (level != SOL_INAGG)
		return -ENOPROTOOPT;
	error = copy_value(name, value, length, &copy);
	if (error)
		return error;
	lock_sock(&isk->sk);
	error = check_state(isk, name);
	if (!error)
		error = set_option(isk, name, &copy, length);
	release_sock(&isk->sk);
	memzero_explicit(&copy, sizeof(copy));
	return error;
}

static void get_info(struct inagg_sock *isk, struct inagg_info *info)
{
	const struct inagg_stream *s = isk->streams;
	u32 ahead = inagg_blocks_ahead(isk);

	spin_lock_bh(&isk->lock);
	*info = isk->info;
	info->job = isk->job.job;
	info->rank = isk->job.rank;
	info->size = isk->job.size;
	info->generation = isk->job.generation;
	info->boot = isk->job.boot;
	info->elements = isk->job.elements;
	info->slots = isk->job.slots;
	info->ahead = ahead;
	info->excluded = isk->member.excluded;
	info->temporary = isk->member.temporary;
	info->permanent = isk->member.permanent;
	info->srtt_ns = s[INAGG_DATA].worker.srtt_ns ?: s[INAGG_CONTROL].worker.srtt_ns;
	spin_unlock_bh(&isk->lock);
}

static int get_number(const struct inagg_sock *isk, int name, int *value)
{
	const struct inagg_settings *set = &isk->set;

	switch (name) {
	case INAGG_DTYPE:
		*value = set->tensor.dtype;
		return 0;
	case INAGG_OP:
		*value = set->tensor.op;
		return 0;
	case INAGG_SCALE:
		*value = set->tensor.scale;
		return 0;
	case INAGG_WINDOW:
		*value = set->window;
		return 0;
	case INAGG_BLOCK:
		*value = set->elements;
		return 0;
	case INAGG_RTO_MIN:
		*value = set->rto_min_us;
		return 0;
	case INAGG_DEADLINE:
		*value = set->deadline_ms;
		return 0;
	case INAGG_CHECKED:
		*value = set->checked;
		return 0;
	case INAGG_BUFFER:
		*value = set->buffer;
		return 0;
	case INAGG_EXPIRY:
		*value = set->expiry_us;
		return 0;
	case INAGG_QUORUM:
		*value = set->quorum;
		return 0;
	case INAGG_HISTORY:
		*value = set->history;
		return 0;
	case INAGG_EXCLUDE:
		*value = set->exclude_ms;
		return 0;
	case INAGG_KEY:
	case INAGG_VERIFY:
		return -EOPNOTSUPP;
	default:
		return -ENOPROTOOPT;
	}
}

int inagg_getsockopt(struct socket *sock, int level, int name, char __user *value, int __user *length)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	char text[ALGORITHM_NAME_MAX] = {};
	struct inagg_info info;
	const void *from;
	int room, number, error;

	if (level != SOL_INAGG)
		return -ENOPROTOOPT;
	if (get_user(room, length))
		return -EFAULT;
	if (room < 0)
		return -EINVAL;
	if (name == INAGG_INFO) {
		get_info(isk, &info);
		from = &info;
		room = min_t(int, room, sizeof(info));
	} else if (name == INAGG_ALGORITHM) {
		strscpy(text, algorithms[isk->set.algorithm], sizeof(text));
		from = text;
		room = min_t(int, room, sizeof(text));
	} else {
		error = get_number(isk, name, &number);
		if (error)
			return error;
		from = &number;
		room = min_t(int, room, sizeof(number));
	}
	if (put_user(room, length) || copy_to_user(value, from, room))
		return -EFAULT;
	return 0;
}
